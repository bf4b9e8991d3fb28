"""Versions of what is installed, and none of what is not."""

from __future__ import annotations

import platform

from sessions.versions import installed


def test_what_is_not_installed_is_left_out() -> None:
    found = installed("msgspec", "no-such-package-anywhere")
    assert found.keys() == {"python", "msgspec"}
    assert found["python"] == platform.python_version()
