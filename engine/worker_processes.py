"""Starts the workers (or awaits those that torchrun starts), keeps their last log lines, and notices their deaths."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from engine.config import ConfigError
from engine.executor import WorkerDied
from engine.link import Link, LinkClosed
from engine.worker_messages import Joined, ToDriver
from sessions.messages import LogLine

LAST_LINES = 50
JOIN_S = 120.0
VERDICT_S = 1.0
"""How long after the first death others are waited for, to find the one that caused the rest."""
EXIT_ORPHANED, EXIT_PEER_LOST = 3, 75
OnLog = Callable[[LogLine], None]


class Worker:
    """One rank: its link, and its process when it was started here."""

    def __init__(self, rank: int, link: Link[ToDriver], process: subprocess.Popen[bytes] | None) -> None:
        self.rank, self.link, self.process = rank, link, process
        self.joined: Joined | None = None
        self.last_log: deque[str] = deque(maxlen=LAST_LINES)
        self.lost = False

    def exit_code(self) -> int | None:
        """The process's exit code, negative for a signal; None while it runs or when it is elsewhere."""
        return self.process.poll() if self.process is not None else None

    @property
    def dead(self) -> bool:
        """Whether its process has ended or its link has closed."""
        return self.lost or self.exit_code() is not None


class WorkerProcesses:
    """All ranks. `close` ends them; the ranks also end by themselves when this process does."""

    def __init__(self, world: int, listen: str, on_log: OnLog | None) -> None:
        """Start `world` workers, or await them at `listen`. Raise ConfigError or WorkerDied when one does not join."""
        self._on_log = on_log
        self.workers: list[Worker] = []
        try:
            if listen:
                self._await_remote(world, listen)
            else:
                for rank in range(world):
                    self.workers.append(self._spawn(rank, world, _free_port() if rank == 0 else self._port))
        except BaseException:
            self.close()
            raise

    def _spawn(self, rank: int, world: int, port: int) -> Worker:
        self._port = port
        ours, theirs = socket.socketpair()
        environment = os.environ | {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": str(world),
            "LOCAL_WORLD_SIZE": str(world),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
            "HERDSCOPE_LINK_FD": str(theirs.fileno()),
            "PYTHONUNBUFFERED": "1",
        }
        cores = os.cpu_count() or 1
        environment.setdefault("OMP_NUM_THREADS", str(max(1, cores // world)))
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
        environment.setdefault("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
        # Each pair of ranks has a group of its own already, which is what this warning asks for.
        environment.setdefault("TORCH_NCCL_SHOW_EAGER_INIT_P2P_SERIALIZATION_WARNING", "false")
        process = subprocess.Popen(
            [sys.executable, "-m", "engine.worker"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        worker = Worker(rank, Link(ours, ToDriver), process)
        threading.Thread(target=self._read_log, args=(worker,), name=f"log-{rank}", daemon=True).start()
        return worker

    def _read_log(self, worker: Worker) -> None:
        assert worker.process is not None and worker.process.stdout is not None
        with worker.process.stdout as lines:
            for raw in lines:
                text = raw.decode("utf-8", "replace").rstrip()
                worker.last_log.append(text)
                if self._on_log is not None:
                    self._on_log(LogLine(time.monotonic_ns(), worker.rank, text))

    def _await_remote(self, world: int, listen: str) -> None:
        host, _, port = listen.rpartition(":")
        token = os.environ.get("HERDSCOPE_TOKEN") or secrets.token_hex(16)
        try:
            server = socket.create_server((host, int(port)), backlog=world)
        except (OSError, ValueError) as error:
            raise ConfigError(f"listen {listen!r}: cannot await workers there: {error}") from None
        with server:
            bound = server.getsockname()
            address = f"{bound[0]}:{bound[1]}"
            self._log(
                f"awaiting {world} workers: HERDSCOPE_DRIVER={address} HERDSCOPE_TOKEN={token} "
                f"torchrun --nproc-per-node N [--nnodes M ...] -m engine.worker"
            )
            deadline = time.monotonic() + JOIN_S
            joined: dict[int, Worker] = {}
            while len(joined) < world:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    sock, peer = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(world)) - set(joined))
                    raise ConfigError(f"ranks {missing} did not join at {address} within {JOIN_S:.0f} s") from None
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                worker = _greet(Link(sock, ToDriver), token, world)
                if worker is None or worker.rank in joined:
                    self._log(f"turned away a worker from {peer[0]}: wrong token or rank")
                    sock.close()
                else:
                    joined[worker.rank] = worker
            self.workers = [joined[rank] for rank in range(world)]

    def _log(self, text: str) -> None:
        if self._on_log is not None:
            self._on_log(LogLine(time.monotonic_ns(), None, text))

    def await_joined(self) -> None:
        """Wait for every worker's first message. Raise WorkerDied."""
        deadline = time.monotonic() + JOIN_S
        for worker in self.workers:
            while worker.joined is None:
                try:
                    message = worker.link.receive(max(0.0, deadline - time.monotonic()))
                except LinkClosed:
                    worker.lost = True
                    raise self.verdict() from None
                if not isinstance(message, Joined):
                    raise WorkerDied(worker.rank, f"did not start within {JOIN_S:.0f} s", None, None, [])
                worker.joined = message

    def verdict(self) -> WorkerDied:
        """Which rank to blame once one is dead: killed by a signal before failed before merely orphaned by another."""
        deadline = time.monotonic() + VERDICT_S
        while time.monotonic() < deadline and not all(worker.dead for worker in self.workers):
            time.sleep(0.02)
        dead = [worker for worker in self.workers if worker.dead] or self.workers[:1]
        blamed = min(dead, key=_blame)
        code = blamed.exit_code()
        # The last lines may still be in the pipe when the exit is seen.
        time.sleep(0.05)
        log = list(blamed.last_log)
        if code is None:
            return WorkerDied(blamed.rank, "its link closed", None, None, log)
        if code < 0:
            name = _signal_name(-code)
            return WorkerDied(blamed.rank, f"killed by {name}", None, name, log)
        last = next((line for line in reversed(log) if line.strip()), "no output")
        return WorkerDied(blamed.rank, f"exited with code {code}: {last.strip()}", code, None, log)

    def close(self, graceful_s: float = 3.0) -> None:
        """End every worker within 10 s: those that do not leave in `graceful_s` are terminated, then killed."""
        for send, wait_s in ((None, graceful_s), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0)):
            running = [w.process for w in self.workers if w.process is not None and w.process.poll() is None]
            if send is not None:
                for process in running:
                    process.send_signal(send)
            deadline = time.monotonic() + wait_s
            for process in running:
                try:
                    process.wait(max(0.0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    continue
        deadline = time.monotonic() + graceful_s
        for worker in self.workers:
            # One that runs elsewhere leaves by itself once told to; hanging up first would look like our death.
            while worker.process is None and not worker.lost and time.monotonic() < deadline:
                try:
                    worker.link.receive(max(0.0, deadline - time.monotonic()))
                except LinkClosed:
                    worker.lost = True
            worker.link.close()


def _greet(link: Link[ToDriver], token: str, world: int) -> Worker | None:
    try:
        message = link.receive(10.0)
    except (LinkClosed, msgspec.MsgspecError):
        return None
    if not isinstance(message, Joined) or not secrets.compare_digest(message.token, token):
        return None
    if not 0 <= message.rank < world:
        return None
    worker = Worker(message.rank, link, None)
    worker.joined = message
    return worker


def _blame(worker: Worker) -> int:
    code = worker.exit_code()
    if code is not None and code < 0:
        return 0
    if code not in (None, 0, EXIT_ORPHANED, EXIT_PEER_LOST):
        return 1
    return 2 if code is None else 3


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
