"""Runs `herdscope bench` against the session's engine, with the background load paused."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sessions.results import BenchResult
from tui.console.session.children import Child


class BenchRequest(msgspec.Struct, frozen=True):
    """What to measure: concurrencies, requests a point (0: the default), repetitions, a name."""

    concurrencies: tuple[int, ...] = (1, 4, 16)
    requests: int = 0
    repeat: int = 1
    label: str = ""

    def arguments(self, address: str) -> list[str]:
        """The command line of this benchmark against the engine at `address`."""
        arguments = ["bench", "--connect", address, "--json", "--save", "--repeat", str(self.repeat)]
        arguments += ["--concurrency", ",".join(str(each) for each in self.concurrencies)]
        if self.requests:
            arguments += ["--requests", str(self.requests)]
        if self.label:
            arguments += ["--label", self.label]
        return arguments


class BenchRunner:
    """At most one benchmark at a time."""

    def __init__(self) -> None:
        self._child: Child | None = None

    @property
    def running(self) -> bool:
        """Whether a benchmark is under way."""
        return self._child is not None

    def start(self, address: str, request: BenchRequest) -> None:
        """Begin. Does nothing while one runs."""
        if self._child is None:
            self._child = Child(request.arguments(address))

    def poll(self) -> BenchResult | str | None:
        """The result once, or why there is none once, or None."""
        child = self._child
        if child is None or (code := child.exit_code) is None:
            return None
        self._child = None
        if code != 0:
            return child.last_error() or f"bench ended with exit code {code}"
        try:
            return msgspec.json.decode(child.output(), type=BenchResult)
        except msgspec.DecodeError as error:
            return f"bench printed no result: {error}"

    def stop(self) -> None:
        """End a benchmark that runs."""
        child, self._child = self._child, None
        if child is not None:
            child.stop()


def saved_results(folder: Path, most: int = 200) -> list[Path]:
    """Result files in `folder`, the newest first."""
    try:
        files = [path for path in folder.iterdir() if path.suffix == ".json" and not path.name.startswith(".")]
        return sorted(files, key=lambda path: path.stat().st_mtime, reverse=True)[:most]
    except OSError:
        return []
