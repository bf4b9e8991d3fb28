"""Runs the HTTP server in this process until it is told to stop or the engine is gone."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from engine.server.app import OpenAiServer
from engine.server.engine_client import EngineClient
from sessions.channel.interface import Channel

SHUTDOWN_TIMEOUT_S = 5


class ServeError(RuntimeError):
    """The server cannot run; one line."""


def listen(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raise ServeError when the address cannot be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio switches Nagle's algorithm off only where it is: without it every chunk of
    # a stream could wait 40 ms for the client's acknowledgement of the one before.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(2048)
    except OSError as error:
        sock.close()
        raise ServeError(f"cannot listen on {host}:{port}: {error.strerror}; choose another address") from None
    return sock


async def serve(
    channel: Channel,
    sock: socket.socket,
    model: str,
    max_context: int,
    api_key: str | None,
    began: Callable[[], None] = lambda: None,
) -> str:
    """Serve the engine behind `channel` on `sock`; returns why it ended. SIGINT and SIGTERM end it from the moment when
    `began` is called."""
    client = EngineClient(channel)
    app = OpenAiServer(client, model, max_context, api_key).app(began)
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=SHUTDOWN_TIMEOUT_S, lifespan="on")
    server = uvicorn.Server(config)

    async def end_with_engine() -> None:
        await client.ended.wait()
        server.should_exit = True

    watch = asyncio.create_task(end_with_engine())
    try:
        await server.serve(sockets=[sock])
    finally:
        watch.cancel()
    return f"the engine is gone: {client.gone}" if client.gone else "stopped"
