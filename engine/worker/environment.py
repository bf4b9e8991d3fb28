"""Who this worker is (the torchrun environment) and how it reaches its driver."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Mapping

import msgspec

from engine.link import Link
from engine.worker_messages import ToWorker

LINK_FD = "HERDSCOPE_LINK_FD"
DRIVER = "HERDSCOPE_DRIVER"
TOKEN = "HERDSCOPE_TOKEN"
CONNECT_S = 60.0
EXIT_ORPHANED = 3


class RankEnvironment(msgspec.Struct, frozen=True):
    """torchrun's variables."""

    rank: int
    local_rank: int
    world: int
    token: str


def rank_environment(environ: Mapping[str, str]) -> RankEnvironment:
    """Read RANK, LOCAL_RANK, WORLD_SIZE. Raise SystemExit naming a missing or ill-formed one."""
    try:
        rank, world = int(environ["RANK"]), int(environ["WORLD_SIZE"])
        return RankEnvironment(rank, int(environ.get("LOCAL_RANK", rank)), world, environ.get(TOKEN, ""))
    except KeyError as error:
        raise SystemExit(f"worker: {error.args[0]} is not set; start workers through herdscope or torchrun") from None
    except ValueError as error:
        raise SystemExit(f"worker: RANK, LOCAL_RANK and WORLD_SIZE must be numbers: {error}") from None


def connect(environ: Mapping[str, str]) -> Link[ToWorker]:
    """The link to the driver: an inherited socket, or HERDSCOPE_DRIVER=HOST:PORT for workers started elsewhere."""
    if LINK_FD in environ:
        sock = socket.socket(fileno=int(environ[LINK_FD]))
    elif DRIVER in environ:
        sock = _dial(environ[DRIVER])
    else:
        raise SystemExit(f"worker: set {DRIVER}=HOST:PORT to the address that the driver printed")
    _exit_with_driver(sock)
    return Link(sock, ToWorker)


def _dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + CONNECT_S
    while True:
        try:
            sock = socket.create_connection((host, int(port)), timeout=5)
        except ValueError:
            raise SystemExit(f"worker: {DRIVER} must be HOST:PORT, not {address!r}") from None
        except OSError as error:
            if time.monotonic() > deadline:
                raise SystemExit(f"worker: no driver answers at {address}: {error}") from None
            time.sleep(0.2)
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return sock


def _exit_with_driver(sock: socket.socket) -> None:
    """End this process at once when the driver's end of the link is gone, also while the main thread is stuck in a
    collective that a dead rank will never join."""

    def watch() -> None:
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        poll.poll()
        os._exit(EXIT_ORPHANED)

    threading.Thread(target=watch, name="driver-watch", daemon=True).start()
