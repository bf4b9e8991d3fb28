"""What one scrape of a server's metrics says, in our words."""

from __future__ import annotations

from typing import Literal

import msgspec

ServerKind = Literal["sglang", "vllm", "herdscope"]


class NotExposed(msgspec.Struct, frozen=True):
    """Something the server does not show, and how to start it so that it does."""

    what: str
    mend: str


class ServerSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """One scrape. What a server does not show is None, with its entry in `not_exposed`.

    slots: live requests of each slot at this instant, when they are known. slots_seen: sizes of slots that were seen,
    by pipeline rank, which is all that some servers show. graphs: whether decode steps replay CUDA graphs.
    kv_used and kv_room are in the server's own unit (tokens, or blocks). generated and prompted count tokens since the
    server started; throughput is the server's own figure.
    """

    kind: ServerKind
    model: str
    stages: int
    running: int | None
    waiting: int | None
    slots: list[int] | None = None
    slots_seen: dict[int, int] = {}
    kv_used: int | None = None
    kv_room: int | None = None
    generated: int | None = None
    prompted: int | None = None
    preempted: int | None = None
    finished: int | None = None
    graphs: bool | None = None
    throughput: float | None = None
    not_exposed: list[NotExposed] = []


class NotAServer(ValueError):
    """Text that is no scrape of a server known here; one line."""
