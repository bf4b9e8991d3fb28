"""Profiles of a server that is watched: started and stopped over HTTP, collected from the folder it writes to."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from probes.attach.errors import ServerError
from probes.attach.http import ServerHttp
from probes.attach.snapshot import ServerKind

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 900.0
FILES_TIMEOUT_S = 120.0
_SUFFIXES = (".trace.json.gz", ".trace.json")
_FRONTEND = ".async_llm."
"""In the name of the trace that vLLM's API server writes of itself: it holds no rank."""


class ProfileNotExposed(ServerError):
    """The server cannot be profiled as it was started; the text says how to start it."""


class CollectedProfile(msgspec.Struct, frozen=True):
    """The traces of one profile, and how long the server took to write them."""

    traces: list[Path]
    stop_s: float


def record_profile(http: ServerHttp, kind: ServerKind, folder: Path, seconds: float) -> CollectedProfile:
    """Profile for `seconds` and wait for the traces. Blocks, for minutes where the server records stacks: run it in a
    thread of its own.

    `folder` is where the server writes (SGLang is told; vLLM writes to the folder of its --profiler-config), seen from
    this host. Raise ServerError.
    """
    before = set(_traces(folder))
    _start(http, kind, folder)
    time.sleep(seconds)
    begun = time.monotonic()
    http.post("/stop_profile", timeout_s=STOP_TIMEOUT_S)
    return CollectedProfile(_wait_for_files(folder, before), time.monotonic() - begun)


def _start(http: ServerHttp, kind: ServerKind, folder: Path) -> None:
    options = {"output_dir": str(folder), "activities": ["CPU", "GPU"], "with_stack": False, "record_shapes": False}
    try:
        http.post("/start_profile", options if kind == "sglang" else None, START_TIMEOUT_S)
    except ServerError as error:
        if "answered 404" in str(error):
            mend = "start it with --profiler-config" if kind == "vllm" else "this version has no /start_profile"
            raise ProfileNotExposed(f"{http.url} cannot be profiled: {mend}") from None
        raise


def _wait_for_files(folder: Path, before: set[Path]) -> list[Path]:
    """New traces, once their sizes have stopped growing."""
    deadline = time.monotonic() + FILES_TIMEOUT_S
    sizes: dict[Path, int] = {}
    while time.monotonic() < deadline:
        now = {path: path.stat().st_size for path in _traces(folder) if path not in before}
        if now and now == sizes:
            return sorted(now)
        sizes = now
        time.sleep(1.0)
    raise ServerError(
        f"no new trace in {folder} after {FILES_TIMEOUT_S:.0f} s: is it the server's folder, on this host?"
    )


def _traces(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return [p for p in folder.glob("**/*") if p.name.endswith(_SUFFIXES) and _FRONTEND not in p.name]
