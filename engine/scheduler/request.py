"""One request's life: waiting -> running (prefill, then decode) -> finished, and back to waiting when preempted; and
the group that it is in while it runs."""

from __future__ import annotations

from enum import Enum
from typing import Protocol

from sessions.messages import FinishReason, RequestSpec


class State(Enum):
    """waiting: no row, no cache. running: has a row and cache blocks. finished: has an end reason."""

    WAITING = 0
    RUNNING = 1
    FINISHED = 2


class TokenReader(Protocol):
    """Turns a request's output tokens into text as they come."""

    def push(self, token: int) -> tuple[str, bool]:
        """Take the next token; return the text that is now certain, and whether a stop string was completed."""
        ...

    def rest(self) -> str:
        """The text held back so far, for a request that ends without a stop string."""
        ...


class Request:
    """A request and where it stands. The scheduler alone changes it.

    tokens: prompt and output so far. known: how many of them the worker's row was given. position: while prefilling
    the tokens already scheduled, while decoding the position of the next decode step. limit: tokens at its end by
    length. end: first position that is never decoded. barrier: first position that cannot be scheduled without a look
    (a new block is needed, or it is `end`). order: (priority, arrival), unique; smaller runs earlier.
    """

    __slots__ = (
        "asker",
        "barrier",
        "blocks",
        "end",
        "group",
        "id",
        "known",
        "limit",
        "order",
        "position",
        "prompt_tokens",
        "reader",
        "reason",
        "row",
        "spec",
        "state",
        "stop_ids",
        "tokens",
    )

    def __init__(
        self,
        spec: RequestSpec,
        prompt: list[int],
        stop_ids: frozenset[int] = frozenset(),
        asker: str = "",
        reader: TokenReader | None = None,
    ) -> None:
        self.id = spec.id
        self.spec = spec
        self.asker = asker
        self.reader = reader
        self.stop_ids = stop_ids
        self.tokens = list(prompt)
        self.prompt_tokens = len(prompt)
        self.limit = len(prompt) + spec.max_tokens
        self.end = self.limit - 1
        self.order = (spec.priority, 0)
        self.state = State.WAITING
        self.reason: FinishReason | None = None
        self.group: Group | None = None
        self.row = -1
        self.known = 0
        self.position = 0
        self.barrier = 0
        self.blocks: list[int] = []

    @property
    def output_tokens(self) -> int:
        """Tokens produced so far."""
        return len(self.tokens) - self.prompt_tokens


class Group:
    """Running requests by what they do next, each in the order in which they joined (dicts used as ordered sets)."""

    __slots__ = ("decoding", "prefilling")

    def __init__(self) -> None:
        self.decoding: dict[Request, None] = {}
        self.prefilling: dict[Request, None] = {}

    @property
    def live(self) -> int:
        """Requests in this group."""
        return len(self.decoding) + len(self.prefilling)

    @property
    def busy(self) -> bool:
        """Whether submitted steps may still use these requests' rows and blocks."""
        return False

    def remove(self, request: Request) -> None:
        """Take out one request that is here."""
        if request in self.decoding:
            del self.decoding[request]
        else:
            del self.prefilling[request]
        request.group = None

    def move_all(self, other: Group) -> None:
        """Move everything to the end of `other`."""
        for request in self.decoding:
            request.group = other
        for request in self.prefilling:
            request.group = other
        if other.decoding:
            other.decoding.update(self.decoding)
            self.decoding.clear()
        else:
            other.decoding, self.decoding = self.decoding, other.decoding
        other.prefilling.update(self.prefilling)
        self.prefilling.clear()
