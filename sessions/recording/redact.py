"""Command lines without their secrets, fit for a file that is shown to others."""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "***"
_SECRET_NAME = re.compile(r"(pass(word|wd|phrase)?|token|secret|api[-_]?key|credential|auth|private[-_]?key)s?$", re.I)
_NOT_SECRET = re.compile(r"(max|num|min|prompt|output|input|budget)[-_].*tokens?$|token[-_]budget$|tokens$", re.I)
_URL_LOGIN = re.compile(r"([a-z][a-z0-9+.-]*://)[^/@\s]+@", re.I)
_KNOWN_SHAPES = re.compile(
    r"\b(hf_|sk-|ghp_|github_pat_|xox[bp]-)[A-Za-z0-9_-]{8,}|(?<=Bearer )\S+|\beyJ[\w-]+\.[\w-]+\.[\w-]+"
)


def redact(arguments: Sequence[str]) -> list[str]:
    """Replace values of flags named like a secret, logins in URLs and well-known token shapes by `***`."""
    shown: list[str] = []
    hide_next = False
    for argument in arguments:
        if hide_next and not argument.startswith("--"):
            shown.append(HIDDEN)
            hide_next = False
            continue
        name, equals, value = argument.partition("=")
        secret = is_secret(name)
        hide_next = secret and argument.startswith("-") and not equals
        shown.append(f"{name}={HIDDEN}" if secret and equals and value else _clean(argument))
    return shown


def is_secret(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret."""
    bare = name.lstrip("-")
    return bool(_SECRET_NAME.search(bare)) and not _NOT_SECRET.search(bare)


def _clean(text: str) -> str:
    return _KNOWN_SHAPES.sub(HIDDEN, _URL_LOGIN.sub(rf"\1{HIDDEN}@", text))
