"""Keeps a launched server's log free of the lines that our own polling causes, and says so in the log.

Both servers log a line for every HTTP request (uvicorn's access log). The line names the address that the request came
from, and our HTTP client knows its own: no line of anybody else's request is taken for one of ours.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Container

_ACCESS = re.compile(r'(\S+) - "GET \S+ HTTP/[\d.]+" ([1-4]\d\d)\b')
"""A read that was answered. One that failed (5xx) says something of the server, and stays."""
TELL_EVERY_S = 600.0


class OwnPolling:
    """Tells lines of our polling from others; `origins` gives the addresses that we poll from, as servers log them."""

    def __init__(
        self,
        origins: Callable[[], Container[str]],
        say: Callable[[str], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """`say` takes the lines that tell what was left out: the first at once, then a count with the server's own
        output, every ten minutes at most."""
        self._origins = origins
        self._say = say
        self._now_s = now_s
        self._untold = 0
        self._told_at: float | None = None

    def caused(self, line: str) -> bool:
        """Whether our polling caused this line of the server's output."""
        found = _ACCESS.search(line)
        if found is None or found[1].removeprefix("::ffff:") not in self._origins():
            if self._told_at is not None and self._now_s() - self._told_at >= TELL_EVERY_S:
                self.tell()
            return False
        if self._told_at is None:
            self._told_at = self._now_s()
            self._say("herdscope leaves the access-log lines of its own polling (GET) out of this log")
        self._untold += 1
        return True

    def tell(self) -> None:
        """Say how many lines were left out since this was last said, if any."""
        if self._untold:
            self._say(f"access-log lines of herdscope's own polling left out: {self._untold}")
            self._untold, self._told_at = 0, self._now_s()
