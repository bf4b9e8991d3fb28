"""Where sockets live: a folder that only this user can enter."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from sessions.channel.interface import ChannelError

MAX_SOCKET_PATH = 107
"""Longest path of a Unix socket in bytes (sun_path is 108 with its final NUL)."""


def runtime_dir() -> Path:
    """This user's private folder for sockets, made when missing: $XDG_RUNTIME_DIR/herdscope or /tmp/herdscope-UID.

    Raise ChannelError when the folder belongs to somebody else or cannot be made.
    """
    base = os.environ.get("XDG_RUNTIME_DIR")
    if base and Path(base).is_dir() and os.access(base, os.W_OK):
        folder = Path(base) / "herdscope"
    else:
        folder = Path("/tmp") / f"herdscope-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        state = folder.lstat()
    except OSError as error:
        raise ChannelError(f"cannot make {folder}: {error.strerror}; set XDG_RUNTIME_DIR") from None
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise ChannelError(f"{folder} belongs to somebody else: set XDG_RUNTIME_DIR to a folder of yours")
    if stat.S_IMODE(state.st_mode) != 0o700:
        folder.chmod(0o700)
    return folder


def check_socket_path(path: Path) -> None:
    """Raise ChannelError when the path is too long for a Unix socket."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise ChannelError(f"socket path is {length} bytes, more than {MAX_SOCKET_PATH}: choose a shorter one: {path}")
