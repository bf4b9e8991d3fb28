"""The sessions screen: recordings of this user, to open."""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.message import Message

from tui.console.draw.palette import ACCENT_STRONG, BAD, DIM, GOOD, STRONG, TEXT, WARN
from tui.console.draw.row import Row
from tui.console.draw.units import clock, size
from tui.console.panels.list_panel import ListPanel
from tui.console.screens.screen import ConsoleScreen
from tui.console.store.store import Store
from tui.console.view import View

if TYPE_CHECKING:
    from sessions.recording.library import Summary


class RecordingsPanel(ListPanel):
    """Two lines a recording, the newest first."""

    LINES_PER_ITEM = 2
    EMPTY_TEXT = "No recording yet: r records this session, F saves its last minutes."
    HELP_TEXT = (
        "Recordings in your data folder, the newest first. Enter replays one in these screens; space marks two, which "
        "enter then shows side by side."
    )

    def __init__(self, store: Store, view: View) -> None:
        super().__init__(store, view, id="recordings", classes="box")
        self.found: list[Summary] = []
        self.marked: list[str] = []
        self.version = 0

    def items(self) -> list[Summary]:
        return self.found

    def items_key(self) -> Hashable:
        return (self.version, tuple(self.marked))

    def title(self) -> str:
        return f"Recordings · {len(self.found)}"

    def subtitle(self) -> str:
        if len(self.marked) == 2:
            return "enter shows A and B side by side"
        return "enter replays · space marks two to see side by side"

    def item_rows(self, item: Summary, width: int, selected: bool) -> list[Row]:
        mark = "AB"[self.marked.index(item.path)] if item.path in self.marked else " "
        first = Row().add(mark, ACCENT_STRONG).add(item.title or Path(item.path).name, STRONG)
        first.add(f"  {item.state}", GOOD if item.state == "finished" else BAD if item.state == "unreadable" else WARN)
        if item.emulated:
            first.add("  EMULATED", WARN)
        if item.tags:
            first.add(f"  {' '.join(item.tags)}", ACCENT_STRONG)
        second = Row().add("   ")
        if item.why:
            return [first, second.add(item.why, BAD)]
        second.add(time.strftime("%Y-%m-%d %H:%M", time.gmtime(item.started_utc)), DIM)
        second.add(f"  {clock(int(item.seconds * 1e9))}", TEXT).add(f"  {item.marks} marks", DIM)
        second.add(f"  {size(item.bytes)}", DIM).add(f"  {Path(item.model).name}  {item.host}", DIM)
        return [first, second]

    def on_key(self, event: events.Key) -> None:
        if event.key != "space" or not self.found:
            super().on_key(event)
            return
        event.stop()
        path = self.found[self.cursor].path
        if path in self.marked:
            self.marked.remove(path)
        else:
            self.marked = [*self.marked, path][-2:]
        self.redraw()

    def chosen(self, index: int) -> list[Path]:
        """The two marked recordings, or the one at `index`."""
        marked = [path for path in self.marked if any(one.path == path for one in self.found)]
        return [Path(path) for path in (marked if len(marked) == 2 else [self.found[index].path])]


class SessionsScreen(ConsoleScreen):
    """`folder` holds the recordings; it is read in a thread."""

    MODE = "sessions"

    class Picked(Message):
        """A recording to replay, or two to replay side by side."""

        def __init__(self, paths: list[Path]) -> None:
            super().__init__()
            self.paths = paths

    def __init__(self, store: Store, view: View, folder: Path) -> None:
        super().__init__(store, view)
        self._folder = folder
        self._read: list[Summary] | None = None

    def compose_body(self) -> ComposeResult:
        yield RecordingsPanel(self.store, self.view)

    def on_mount(self) -> None:
        self.query_one(RecordingsPanel).focus()

    def on_screen_resume(self) -> None:
        threading.Thread(target=self._list, name="recordings", daemon=True).start()

    def _list(self) -> None:
        from sessions.recording.library import find, summarise

        self._read = [summarise(path) for path in reversed(find(self._folder))]

    def tick(self) -> None:
        read, self._read = self._read, None
        if read is not None:
            panel = self.query_one(RecordingsPanel)
            panel.found = read
            panel.version += 1
        super().tick()

    def on_list_panel_chosen(self, event: ListPanel.Chosen) -> None:
        self.post_message(self.Picked(self.query_one(RecordingsPanel).chosen(event.index)))
