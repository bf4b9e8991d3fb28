"""Turns a server's scrapes into the messages that our own engine sends, so that the same console shows them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import msgspec

from probes.attach.errors import ServerError
from probes.attach.http import ServerHttp
from probes.attach.read_scrape import read_scrape
from probes.attach.recognise import Recognised
from probes.attach.snapshot import NotAServer, ServerSnapshot
from sessions.messages import EngineState, Fault, Marker, Message, ModelInfo, QueueFrame, SlotSize

PERIOD_S = 1.0
FAILURES_TO_FAULT = 3


class ServerWatcher:
    """Scrapes every second in a thread. Three scrapes without an answer are a Fault; an answer after that ends it."""

    def __init__(self, http: ServerHttp, server: Recognised, source: str, publish: Callable[[Message], None]) -> None:
        self.snapshot: ServerSnapshot | None = None
        self._http = http
        self._server = server
        self._source = source
        self._publish = publish
        self._failures = 0
        self._told: set[str] = set()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="server-watcher", daemon=True)

    def start(self) -> None:
        """Tell what the server is, and begin scraping."""
        self._publish(self._state("ready"))
        self._thread.start()

    def stop(self) -> None:
        """End the thread and close the connections."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(PERIOD_S + 5.0)
        self._http.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.scrape_once()
            self._stop.wait(PERIOD_S)

    def scrape_once(self) -> None:
        """One scrape, and what follows from it."""
        try:
            snapshot = read_scrape(self._http.text("/metrics"))
        except (ServerError, NotAServer) as error:
            self._failed(str(error))
            return
        if self._failures >= FAILURES_TO_FAULT:
            self._publish(self._state("ready"))
            self._note(f"{self._http.url} answers again")
        self._failures = 0
        if self.snapshot is None and self._server.pp is None and snapshot.stages > 1:
            self.tell_stages(snapshot.stages)
        self.snapshot = snapshot
        for entry in snapshot.not_exposed:
            self._note_once(f"{entry.what}: not exposed by {self._name}: {entry.mend}")
        self._publish(queue_frame(snapshot, self._server, self._source, time.monotonic_ns()))

    def tell_stages(self, stages: int) -> None:
        """Tell how many stages the server has, which it did not say by itself."""
        self._server = msgspec.structs.replace(self._server, pp=stages)
        self._publish(self._state("ready"))

    @property
    def _name(self) -> str:
        names = {"sglang": "SGLang", "vllm": "vLLM", "herdscope": "this engine"}
        return f"{names[self._server.kind]} {self._server.version}".strip()

    def _failed(self, why: str) -> None:
        self._failures += 1
        if self._failures == FAILURES_TO_FAULT:
            now = time.monotonic_ns()
            self._publish(self._state("failed", why))
            fault = Fault(source=self._source, t_ns=now, what=f"{self._name} died", cause=why, restartable=False)
            self._publish(fault)

    def _note_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._note(text)

    def _note(self, text: str) -> None:
        self._publish(Marker(source=self._source, t_ns=time.monotonic_ns(), category="note", text=text))

    def _state(self, phase: str, detail: str = "") -> EngineState:
        model = self._server.models[0] if self._server.models else ""
        return EngineState(
            source=self._source,
            t_ns=time.monotonic_ns(),
            phase="failed" if phase == "failed" else "ready",
            detail=detail,
            model=ModelInfo(
                name=model,
                architecture=self._name,
                layers=0,
                hidden=0,
                experts=0,
                experts_per_token=0,
                vocab=0,
                dtype="",
                load_format="",
            ),
            stages=self._server.pp or 1,
            max_context=self._server.max_context or 0,
            hardware=self._http.url,
        )


def queue_frame(snapshot: ServerSnapshot, server: Recognised, source: str, t_ns: int) -> QueueFrame:
    """A scrape as a queue frame. Slots are empty unless the scrape tells them; missing counts are 0."""
    slots = list(snapshot.slots or [])
    if slots and server.slots is not None:
        slots += [0] * (server.slots - len(slots))
    return QueueFrame(
        source=source,
        t_ns=t_ns,
        waiting=snapshot.waiting or 0,
        running=snapshot.running or 0,
        slots=[SlotSize(size, 0, False) for size in slots],
        in_flight=sum(size > 0 for size in slots),
        kv_blocks_used=snapshot.kv_used or 0,
        kv_blocks=snapshot.kv_room or 0,
        output_tokens_total=snapshot.generated or 0,
        prompt_tokens_total=snapshot.prompted or 0,
        finished_total=snapshot.finished or 0,
        preempted_total=snapshot.preempted or 0,
    )
