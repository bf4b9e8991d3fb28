"""Versions of installed packages."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def installed(*packages: str) -> dict[str, str]:
    """Python's version and that of each package; one that is not installed is left out (ours, run from its sources)."""
    found = {"python": platform.python_version()}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
