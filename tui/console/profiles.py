"""Profile on demand: all ranks record a few steps, and the diagnosis of the traces is shown."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

from sessions.channel.interface import Channel, ChannelError
from sessions.clock import source_id
from sessions.messages import ProfileReply, ProfileRequest, Verdicts
from tui.console.store.store import Store
from tui.console.view import Apart, View

STEPS = 32
TIMEOUT_S = 400.0


class Profiles:
    """At most one profile at a time. `shown` is called when there is a diagnosis to look at."""

    def __init__(self, store: Store, view: View, shown: Callable[[], None]) -> None:
        self._store = store
        self._view = view
        self._shown = shown
        self._task: asyncio.Task[None] | None = None

    def start(self, channel: Channel | None) -> None:
        """Begin, in a task of the running loop."""
        if channel is None:
            self._store.note("refused", "profile: nothing is connected")
        elif self._task is not None and not self._task.done():
            self._store.note("refused", "profile: one is being taken already")
        else:
            self._task = asyncio.get_running_loop().create_task(self._profile(channel))

    async def _profile(self, channel: Channel) -> None:
        from platformdirs import user_cache_path

        folder = user_cache_path("herdscope") / "profiles" / time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        folder.mkdir(parents=True, exist_ok=True)
        self._store.note("note", f"profiling {STEPS} micro-batches")
        request = ProfileRequest(
            source=channel.source, t_ns=self._store.now_ns, id=f"profile-{folder.name}", steps=STEPS, folder=str(folder)
        )
        try:
            reply = await channel.ask(request, TIMEOUT_S)
        except ChannelError as error:
            self._store.note("refused", f"profile: {error}")
            return
        if not isinstance(reply, ProfileReply) or not reply.ok:
            self._store.note("refused", f"profile: {reply.reason}")
            return
        self._store.note("note", f"profiled to {folder}{_cost(reply)}")
        try:
            found = await asyncio.to_thread(_diagnose, [Path(path) for path in reply.traces])
        except (OSError, ValueError) as error:
            self._store.note("refused", f"profile: {error}")
            return
        self._view.apart = Apart("the profile", found)
        self._shown()


def _cost(reply: ProfileReply) -> str:
    before, during = reply.tokens_per_s_before, reply.tokens_per_s_profiled
    if before is None or during is None:
        return ""
    return f"; {during:.0f} tok/s while profiling, {before:.0f} before"


def _diagnose(traces: list[Path]) -> Verdicts:
    from probes.diagnosis.diagnose import diagnose
    from probes.diagnosis.from_traces import evidence_from_traces
    from probes.diagnosis.live import verdicts_message
    from probes.traces.load import load

    return verdicts_message(diagnose(evidence_from_traces(load(traces))), source_id("console"), time.monotonic_ns())
