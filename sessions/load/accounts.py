"""Every request accounted for: what was submitted is finished, cancelled, refused, failed or still live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from sessions.messages import FinishReason, TokenFrame


class Accounts:
    """Counts the requests of one asker by how they ended, with the reasons of those that did not finish."""

    def __init__(self) -> None:
        self.live: set[str] = set()
        self.submitted = 0
        self.ends: Counter[FinishReason] = Counter()
        self.reasons: Counter[str] = Counter()

    @property
    def finished(self) -> int:
        """Requests that came to their own end, by length or by a stop."""
        return self.ends["length"] + self.ends["stop"]

    def submit(self, requests: Iterable[str]) -> None:
        """These requests go to the engine."""
        for request in requests:
            self.live.add(request)
            self.submitted += 1

    def end(self, request: str, reason: FinishReason, detail: str = "") -> bool:
        """One request ended; False when it is none of ours or ended before."""
        if request not in self.live:
            return False
        self.live.remove(request)
        self.ends[reason] += 1
        if reason not in ("length", "stop"):
            self.reasons[f"{reason}: {detail or 'no reason given'}"] += 1
        return True

    def take(self, frame: TokenFrame) -> list[str]:
        """Note the ends that a frame tells of; return those that are ours."""
        return [end.request for end in frame.finished if self.end(end.request, end.reason, end.detail)]

    def summary(self) -> str:
        """One line for a person."""
        parts = [f"{self.submitted} submitted", f"{self.finished} finished"]
        parts += [f"{self.ends[name]} {name}" for name in ("cancelled", "refused", "failed") if self.ends[name]]
        if self.live:
            parts.append(f"{len(self.live)} without an end")
        return ", ".join(parts)
