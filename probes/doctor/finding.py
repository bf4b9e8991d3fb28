"""One thing that the doctor looked at."""

from __future__ import annotations

from typing import Literal

import msgspec

Health = Literal["ok", "limited", "missing"]


class Finding(msgspec.Struct, frozen=True):
    """`limited` and `missing` come with a mend; nothing that is merely absent here stops the CPU engine."""

    name: str
    health: Health
    detail: str
    mend: str = ""
