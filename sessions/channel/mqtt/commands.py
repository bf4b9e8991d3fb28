"""Both ends of commands over a carrier that may lose or repeat packets: asked again until answered, applied once."""

from __future__ import annotations

from collections import OrderedDict

import msgspec

from sessions.messages import Command, Reply

REPEAT_NS = 1_000_000_000
GIVE_UP_NS = 120_000_000_000
MAX_ANSWERED = 4096
MAX_AGE_NS = 60_000_000_000

Key = tuple[str, str]


class _Asked(msgspec.Struct):
    command: Command
    first_ns: int
    last_ns: int


class AskedCommands:
    """Commands of this peer that have no answer yet. They are due again each second until one comes, and given up when
    nobody waits for them any more, so that no command is applied long after its asker has turned away."""

    def __init__(self) -> None:
        self._asked: dict[str, _Asked] = {}

    def ask(self, command: Command, now_ns: int) -> None:
        """Remember a command that is being sent now."""
        self._asked[command.id] = _Asked(command, now_ns, now_ns)

    def answered(self, command_id: str) -> Command | None:
        """Its reply has come; None when it had before."""
        asked = self._asked.pop(command_id, None)
        return asked.command if asked else None

    def due(self, now_ns: int, awaited: set[str]) -> list[Command]:
        """Commands to send again now. Those whose id is not in `awaited` are forgotten."""
        for command_id, asked in list(self._asked.items()):
            if command_id not in awaited or now_ns - asked.first_ns > GIVE_UP_NS:
                del self._asked[command_id]
        due = [asked for asked in self._asked.values() if now_ns - asked.last_ns >= REPEAT_NS]
        for asked in due:
            asked.last_ns = now_ns
        return [asked.command for asked in due]


class ReceivedCommands:
    """Commands that this peer was asked: each is applied once, and a repetition gets the same reply again."""

    def __init__(self) -> None:
        self._replies: OrderedDict[Key, Reply | None] = OrderedDict()

    def is_new(self, command: Command) -> bool:
        """Whether to apply this command; remembers it as seen."""
        key = (command.source, command.id)
        if key in self._replies:
            return False
        self._replies[key] = None
        while len(self._replies) > MAX_ANSWERED:
            self._replies.popitem(last=False)
        return True

    def reply_to(self, command: Command) -> Reply | None:
        """The reply already given to this command, if any."""
        return self._replies.get((command.source, command.id))

    def replied(self, reply: Reply) -> None:
        """Remember a reply for repetitions of its command."""
        self._replies[(reply.to, reply.id)] = reply


def too_old(command: Command, now_ns: int) -> bool:
    """Whether a command (its time on our clock) is no longer meant: a recording sent again, or one delayed past use."""
    return abs(now_ns - command.t_ns) > MAX_AGE_NS
