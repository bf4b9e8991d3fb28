"""The doctor's checks. Each is a function without arguments that returns one Finding and never raises."""

from __future__ import annotations

import json
import locale
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable

import psutil

from probes.doctor.finding import Finding
from probes.gpu import GpuProbe
from sessions.versions import installed

TORCH_TIMEOUT_S = 60
BROKER_TIMEOUT_S = 1.0
MIN_COLUMNS, MIN_ROWS = 80, 24

_ASK_TORCH = """
import json, torch
gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
print(json.dumps({"cuda": torch.version.cuda, "gpus": gpus, "nccl": torch.distributed.is_nccl_available()}))
"""


def examine() -> list[Finding]:
    """Run every check; takes a few seconds, most of it for torch to load in a process of its own."""
    checks: list[Callable[[], Finding]] = [python, machine, gpus, torch, triton, broker, terminal]
    return [check() for check in checks]


def python() -> Finding:
    """The interpreter."""
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def machine() -> Finding:
    """Cores and memory."""
    memory = psutil.virtual_memory()
    detail = f"{psutil.cpu_count()} cores, {memory.total / 2**30:.0f} GiB, {memory.available / 2**30:.0f} GiB free"
    if memory.available < 2 * 2**30:
        return Finding("machine", "limited", detail, "free memory: the tiny engine wants about 0.4 GiB a stage")
    return Finding("machine", "ok", detail)


def gpus() -> Finding:
    """NVIDIA GPUs and their driver."""
    probe = GpuProbe("doctor")
    probe.sample_slow()
    frames = probe.sample()
    probe.close()
    if not frames:
        return Finding(
            "gpus", "missing", probe.reason or "none", "install the NVIDIA driver, or use the CPU engine or --emulate"
        )
    lacking = sorted({f"{field} ({why})" for frame in frames for field, why in frame.unavailable.items()})
    detail = f"{len(frames)} x {frames[0].name}"
    if lacking:
        return Finding("gpus", "limited", f"{detail}; n/a: {', '.join(lacking)}", "a newer driver may offer these")
    return Finding("gpus", "ok", detail)


def torch() -> Finding:
    """torch, asked in a process of its own, because loading it takes seconds and memory."""
    version = installed("torch").get("torch")
    if version is None:
        return Finding("torch", "missing", "not installed", "pip install 'torch>=2.11'")
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH], capture_output=True, text=True, timeout=TORCH_TIMEOUT_S, check=True
        )
        facts = json.loads(answer.stdout)
    except subprocess.TimeoutExpired:
        return Finding("torch", "limited", f"{version} did not load in {TORCH_TIMEOUT_S} s", "look at the disk's load")
    except (subprocess.CalledProcessError, ValueError) as error:
        last = (getattr(error, "stderr", "") or str(error)).strip().splitlines()[-1:]
        return Finding("torch", "missing", f"{version} does not load: {''.join(last)}", "reinstall torch")
    if facts["gpus"]:
        return Finding("torch", "ok", f"{version}, CUDA {facts['cuda']}, sees {facts['gpus']} GPUs")
    built = f"CUDA {facts['cuda']} build" if facts["cuda"] else "CPU build"
    return Finding("torch", "ok", f"{version} ({built}), sees no GPU: the engine runs on the CPU")


def triton() -> Finding:
    """triton, which the GPU kernels are written in."""
    version = installed("triton").get("triton")
    if version is None:
        return Finding("triton", "missing", "not installed", "pip install triton (only needed for engines on GPUs)")
    return Finding("triton", "ok", version)


def broker() -> Finding:
    """An MQTT broker: the mosquitto binary, and whether one answers on this host."""
    binary = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    try:
        socket.create_connection(("127.0.0.1", 1883), BROKER_TIMEOUT_S).close()
    except OSError:
        if binary:
            return Finding("broker", "ok", f"{binary}; none running on 127.0.0.1:1883")
        return Finding(
            "broker", "missing", "no mosquitto", "apt-get install mosquitto (only needed for probes on other hosts)"
        )
    return Finding("broker", "ok", "one listens on 127.0.0.1:1883")


def terminal() -> Finding:
    """What the console will have to draw on."""
    size = shutil.get_terminal_size((0, 0))
    encoding = locale.getpreferredencoding(False)
    facts = [os.environ.get("TERM", "no TERM"), f"{size.columns}x{size.lines}", encoding]
    facts += ["true colour"] if os.environ.get("COLORTERM") in ("truecolor", "24bit") else []
    facts += ["NO_COLOR"] if os.environ.get("NO_COLOR") else []
    facts += ["over SSH"] if os.environ.get("SSH_CONNECTION") else []
    detail = ", ".join(facts)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return Finding("terminal", "limited", "not a terminal", "run the console in a terminal; other commands work")
    if encoding.lower().replace("-", "") != "utf8":
        return Finding("terminal", "limited", detail, "set LANG=C.UTF-8 so that the charts can be drawn")
    if size.columns < MIN_COLUMNS or size.lines < MIN_ROWS:
        return Finding("terminal", "limited", detail, f"make it at least {MIN_COLUMNS}x{MIN_ROWS}")
    return Finding("terminal", "ok", detail)
