"""The first message of either side."""

from __future__ import annotations

import os
import socket

from sessions.clock import wall_anchor
from sessions.messages import Hello, Role


def hello(source: str, role: Role) -> Hello:
    """This process introduces itself."""
    t_ns, wall_ns = wall_anchor()
    return Hello(source=source, t_ns=t_ns, wall_ns=wall_ns, role=role, host=socket.gethostname(), pid=os.getpid())
