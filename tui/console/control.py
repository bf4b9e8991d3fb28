"""What the operator does to the session: knob and load requests over the channel, and the view's own switches."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable

from sessions.channel.interface import Channel, ChannelError
from sessions.knobs import ADMISSIONS, MAX_ASYNC_DEPTH, MAX_MICRO_BATCH, KnobName, KnobValue
from sessions.messages import Command, KnobReply, KnobRequest, LoadRequest, Reply, VerdictOn
from tui.console.store.store import Store
from tui.console.view import View

REPLY_TIMEOUT_S = 120.0
"""A change of parallelism moves all weights; everything else is answered in milliseconds."""
LOAD_TIMEOUT_S = 5.0
MAX_CONCURRENCY = 4096
CHART_SECONDS = (15, 30, 60, 120, 300, 600)
ZOOMS = range(-10, 16)


class Control:
    """Turns actions into commands, and says when one is refused. Belongs to one event loop."""

    def __init__(self, store: Store, view: View) -> None:
        self._store = store
        self._view = view
        self._tasks: set[asyncio.Task[None]] = set()
        self._ids = itertools.count(1)
        self._channel: Channel | None = None
        self._read_only = "no engine is connected"
        self._resume_at: int | None = None

    def use(self, channel: Channel | None, read_only: str) -> None:
        """Send commands to this channel from now on; without one refuse them, for the reason `read_only`."""
        self._channel = channel
        self._read_only = read_only

    # --- knobs ---------------------------------------------------------------------------------------------------

    def step_depth(self, by: int) -> None:
        """Micro-batches in flight, one more or fewer."""
        now = self._value("async_depth")
        if isinstance(now, int):
            self.turn("async_depth", min(MAX_ASYNC_DEPTH, max(1, now + by)))

    def step_admission(self, by: int) -> None:
        """The next or previous admission policy."""
        now = self._value("admission")
        if now in ADMISSIONS:
            self.turn("admission", ADMISSIONS[(ADMISSIONS.index(now) + by) % len(ADMISSIONS)])

    def scale_batch(self, factor: float) -> None:
        """Most requests a slot, times `factor`."""
        now = self._value("max_micro_batch")
        if isinstance(now, int):
            self.turn("max_micro_batch", min(MAX_MICRO_BATCH, max(1, int(now * factor))))

    def toggle_graphs(self) -> None:
        """CUDA graphs on or off."""
        now = self._value("cuda_graphs")
        if isinstance(now, bool):
            self.turn("cuda_graphs", not now)

    def toggle_parallelism(self) -> None:
        """Pipeline stages, or split experts."""
        now = self._value("parallelism")
        if now is not None:
            self.turn("parallelism", "ep" if now == "pp" else "pp")

    def apply(self, verdict: VerdictOn | None) -> None:
        """Turn the knob that fixes what a verdict names."""
        if verdict is None:
            self._store.note("refused", "no verdict names a cause now")
        elif verdict.knob is None or verdict.value is None:
            self._store.note("refused", f"no knob here fixes this: {verdict.fix or 'no fix is known'}")
        else:
            self.turn(verdict.knob, verdict.value)

    def turn(self, knob: KnobName, value: KnobValue) -> None:
        """Ask for a knob's value. What cannot be done is said in the event log at once."""
        state = self._store.knobs
        if state is not None and knob in state.unavailable:
            self._store.note("refused", f"{knob} is unavailable: {state.unavailable[knob]}")
            return
        if self._value(knob) == value:
            return
        channel = self._usable(knob)
        if channel is None:
            return
        self._view.pending[knob] = value
        request = KnobRequest(
            source=channel.source, t_ns=self._store.now_ns, id=self._next_id(), knob=knob, value=value
        )

        def finish(reply: Reply | None) -> None:
            if self._view.pending.get(knob) == value:
                del self._view.pending[knob]
            # A knob's own reply comes to everybody who watches, and so to the store, with everything else.
            if reply is not None and not reply.ok and not isinstance(reply, KnobReply):
                self._store.note("refused", f"{knob}: {reply.reason}")

        self._send(channel, request, REPLY_TIMEOUT_S, finish, knob)

    # --- load ----------------------------------------------------------------------------------------------------

    def scale_load(self, factor: float) -> None:
        """Concurrency times `factor`; from a pause it starts at 1."""
        now = self._concurrency()
        if now is not None:
            self.set_load(max(1, int(now * factor)))

    def step_load(self, by: int) -> None:
        """One request at a time more or fewer."""
        now = self._concurrency()
        if now is not None:
            self.set_load(max(1, now + by))

    def pause_load(self) -> None:
        """Submit nothing more, or go on as before."""
        now = self._concurrency()
        if now:
            self._resume_at = now
            self.set_load(0)
        elif now == 0:
            self.set_load(self._resume_at or 1)

    def _concurrency(self) -> int | None:
        if self._view.wanted_concurrency is not None:
            return self._view.wanted_concurrency
        load = self._store.load
        if load is None or load.concurrency is None:
            self._store.note("refused", "no load generator with a concurrency is running")
            return None
        return load.concurrency

    def set_load(self, concurrency: int) -> None:
        """Ask the load generator for this concurrency; 0 pauses it."""
        channel = self._usable("load")
        if channel is None:
            return
        wanted = min(MAX_CONCURRENCY, concurrency)
        self._view.wanted_concurrency = wanted
        request = LoadRequest(source=channel.source, t_ns=self._store.now_ns, id=self._next_id(), concurrency=wanted)

        def finish(reply: Reply | None) -> None:
            if self._view.wanted_concurrency == wanted:
                self._view.wanted_concurrency = None
            if reply is not None and not reply.ok:
                self._store.note("refused", f"load: {reply.reason}")

        self._send(channel, request, LOAD_TIMEOUT_S, finish, "load")

    # --- view ----------------------------------------------------------------------------------------------------

    def freeze(self) -> None:
        """Hold the time lines still, or let them go."""
        self._view.frozen_ns = None if self._view.frozen_ns is not None else self._store.now_ns

    def zoom(self, by: int) -> None:
        """Swimlane cells twice as long, or half."""
        self._view.zoom = min(ZOOMS[-1], max(ZOOMS[0], self._view.zoom + by))

    def chart(self, by: int) -> None:
        """The next longer or shorter time of the throughput chart."""
        at = CHART_SECONDS.index(self._view.chart_s) + by
        self._view.chart_s = CHART_SECONDS[min(len(CHART_SECONDS) - 1, max(0, at))]

    # --- sending -------------------------------------------------------------------------------------------------

    def _value(self, knob: KnobName) -> KnobValue | None:
        if knob in self._view.pending:
            return self._view.pending[knob]
        if self._store.knobs is None:
            self._store.note("refused", f"{knob}: the engine has not told its knobs yet")
            return None
        value: KnobValue = getattr(self._store.knobs.knobs, knob)
        return value

    def _usable(self, what: str) -> Channel | None:
        if self._channel is None:
            self._store.note("refused", f"{what}: {self._read_only}")
        return self._channel

    def _next_id(self) -> str:
        return f"console-{next(self._ids)}"

    def _send(
        self, channel: Channel, command: Command, timeout_s: float, finish: Callable[[Reply | None], None], what: str
    ) -> None:
        """Ask in a task of the running loop: commands leave in the order of the key presses, and nothing waits."""

        async def ask() -> None:
            reply = None
            try:
                reply = await channel.ask(command, timeout_s)
            except ChannelError as error:
                self._store.note("refused", f"{what}: {error}")
            finish(reply)

        task = asyncio.get_running_loop().create_task(ask(), name=f"ask {command.id}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
