"""The topics of one session. A source stands in a topic percent-encoded, so that it is one level of it."""

from __future__ import annotations

from urllib.parse import quote, unquote

import msgspec


class TopicName(msgspec.Struct, frozen=True):
    """A topic taken apart: which of the lines below it belongs to, and its two last levels."""

    line: str
    first: str
    second: str = ""


class Topics:
    """Names topics under a session's base.

    pub/SOURCE/KIND       messages; retained kinds and hellos are retained by the broker too
    cmd/KIND/ASKER        commands
    reply/ASKER/ANSWERER  answers to them
    serve/KIND/ANSWERER   who answers that kind (retained)
    interest/SOURCE       the kinds that this peer subscribes to (retained)
    ping/TARGET/ASKER and pong/ASKER/TARGET   clock comparison
    """

    def __init__(self, base: str) -> None:
        self.base = base

    def pub(self, source: str, kind: str) -> str:
        return f"{self.base}/pub/{encoded(source)}/{kind}"

    def pub_of_kind(self, kind: str) -> str:
        return f"{self.base}/pub/+/{kind}"

    def cmd(self, kind: str, asker: str) -> str:
        return f"{self.base}/cmd/{kind}/{encoded(asker)}"

    def cmd_of_kind(self, kind: str) -> str:
        return f"{self.base}/cmd/{kind}/+"

    def reply(self, asker: str, answerer: str) -> str:
        return f"{self.base}/reply/{encoded(asker)}/{encoded(answerer)}"

    def replies_to(self, asker: str) -> str:
        return f"{self.base}/reply/{encoded(asker)}/+"

    def all_replies(self) -> str:
        return f"{self.base}/reply/+/+"

    def serve(self, kind: str, answerer: str) -> str:
        return f"{self.base}/serve/{kind}/{encoded(answerer)}"

    def servers(self) -> str:
        return f"{self.base}/serve/+/+"

    def interest(self, source: str) -> str:
        return f"{self.base}/interest/{encoded(source)}"

    def interests(self) -> str:
        return f"{self.base}/interest/+"

    def ping(self, target: str, asker: str) -> str:
        return f"{self.base}/ping/{encoded(target)}/{encoded(asker)}"

    def pings_to(self, target: str) -> str:
        return f"{self.base}/ping/{encoded(target)}/+"

    def pong(self, asker: str, target: str) -> str:
        return f"{self.base}/pong/{encoded(asker)}/{encoded(target)}"

    def pongs_to(self, asker: str) -> str:
        return f"{self.base}/pong/{encoded(asker)}/+"

    def parse(self, topic: str) -> TopicName | None:
        """Take a topic apart; None for one that is not of these forms."""
        if not topic.startswith(self.base + "/"):
            return None
        levels = [unquote(level) for level in topic[len(self.base) + 1 :].split("/")]
        return TopicName(*levels) if 2 <= len(levels) <= 3 else None


def encoded(source: str) -> str:
    """A source id as one topic level (and as an MQTT client id)."""
    return quote(source, safe="")
