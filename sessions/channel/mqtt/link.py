"""Keeps one connection to a broker alive in a thread of its own: subscriptions, publications, reconnection."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import aiomqtt

from sessions.channel.mqtt.address import BrokerAddress
from sessions.channel.mqtt.client import BrokerClient, PublicationRefused
from sessions.channel.mqtt.outgoing import Outgoing, Publication
from sessions.channel.mqtt.payload import joined

BACKOFF_S = (0.1, 0.2, 0.4, 0.8, 1.0)
"""Pauses between attempts; each is halved or kept at random, so that many peers do not come back in step."""
TICK_S = 0.5


class LinkUser(Protocol):
    """Who the link works for. Its methods are called in the link's thread and must be quick."""

    def will(self) -> Publication: ...
    def topics_wanted(self) -> set[str]: ...
    def on_connected(self) -> None: ...
    def on_disconnected(self, reason: str) -> None: ...
    def on_message(self, topic: str, payload: bytes) -> None: ...
    def on_refused(self, publication: Publication, reason: str) -> None: ...
    def on_tick(self) -> None: ...


class BrokerLink:
    """Runs until stopped; while the broker is away what is published waits, frames being dropped oldest first."""

    def __init__(self, address: BrokerAddress, source: str, user: LinkUser) -> None:
        self.outgoing = Outgoing(self._wake_writer)
        self.connections = 0
        self._address = address
        self._source = source
        self._user = user
        self._loop = asyncio.new_event_loop()
        self._stop: asyncio.Event | None = None
        self._written: asyncio.Event | None = None
        self._resubscribe: asyncio.Event | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqtt", daemon=True)

    def start(self) -> None:
        """Begin connecting."""
        self._thread.start()
        self._ready.wait()

    def stop(self, timeout_s: float) -> None:
        """Publish what waits, disconnect and end the thread."""
        self._call(self._stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Run `function` in the link's thread; callable from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop has ended: nobody is left to tell
            self._loop.call_soon_threadsafe(function, *arguments)

    def refresh_subscriptions(self) -> None:
        """The wanted topics have changed; callable from any thread."""
        self._call(self._resubscribe)

    def _wake_writer(self) -> None:
        self._call(self._written)

    def _call(self, event: asyncio.Event | None) -> None:
        if event is not None:
            self.post(event.set)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._main())
        finally:
            self._ready.set()
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()

    async def _main(self) -> None:
        self._stop, self._written, self._resubscribe = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ready.set()
        attempt = 0
        while not self._stop.is_set():
            connected_before = self.connections
            try:
                await self._connected()
            except (aiomqtt.MqttError, OSError) as error:
                self._user.on_disconnected(_reason(error))
            attempt = 0 if self.connections > connected_before else attempt + 1
            pause = BACKOFF_S[min(attempt, len(BACKOFF_S) - 1)] * random.uniform(0.5, 1.0)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), pause)

    async def _connected(self) -> None:
        """One connection, from its start to its end."""
        async with BrokerClient(self._address, self._source, self._user.will()) as client:
            self.connections += 1
            subscribed: set[str] = set()
            await self._subscribe(client, subscribed)
            self._user.on_connected()
            assert self._written is not None
            self._written.set()
            await _until_first_ends(
                self._read(client), self._write(client), self._keep_subscribed(client, subscribed), self._tick()
            )
            await self._flush(client)

    async def _read(self, client: BrokerClient) -> None:
        async for message in client.messages:
            if isinstance(message.payload, bytes):
                self._user.on_message(message.topic.value, message.payload)

    async def _write(self, client: BrokerClient) -> None:
        assert self._written is not None and self._stop is not None
        while not self._stop.is_set():
            await self._written.wait()
            self._written.clear()
            await self._flush(client)

    async def _flush(self, client: BrokerClient) -> None:
        while batch := self.outgoing.take():
            try:
                await client.send(joined(batch))
            except PublicationRefused as refusal:
                for publication in batch:
                    self._user.on_refused(publication, str(refusal))
            except BaseException:
                self.outgoing.put_back(batch)
                raise

    async def _keep_subscribed(self, client: BrokerClient, subscribed: set[str]) -> None:
        assert self._resubscribe is not None
        while True:
            await self._resubscribe.wait()
            self._resubscribe.clear()
            await self._subscribe(client, subscribed)

    async def _subscribe(self, client: BrokerClient, subscribed: set[str]) -> None:
        wanted = self._user.topics_wanted()
        if new := sorted(wanted - subscribed):
            await client.subscribe([(topic, 1) for topic in new])
        if old := sorted(subscribed - wanted):
            await client.unsubscribe(old)
        subscribed.clear()
        subscribed.update(wanted)

    async def _tick(self) -> None:
        assert self._stop is not None
        while not self._stop.is_set():
            self._user.on_tick()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), TICK_S)


async def _until_first_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until one returns or fails; the others are cancelled."""
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reason(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
