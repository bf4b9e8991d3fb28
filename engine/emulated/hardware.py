"""Hardware profiles: the figures of one GPU, its links and its host that the roofline needs.

A profile is named `NAME` (one GPU) or `COUNTx-NAME`, or is a TOML file with the fields of `Hardware`, which may name
a built-in profile as its `base`:

    base = "h200"
    count = 8
    memory_efficiency = 0.85

Sources of the built-in figures, by the words used below. "data sheet": the maker's public data sheet. "measured on
H200": this project's own measurements, docs/emulation.md. "fitted": derived from two published single-request rates
of a pipeline of eight, one with and one without CUDA graphs; `engine.emulated.calibrate` does it again and a test
compares. "assumed": a round figure of the right size, stated so that nobody takes it for a measurement.
"""

from __future__ import annotations

import math
import re
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from engine.config import ConfigError

MAX_GPUS = 4096


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`count` equal GPUs. Base units, but microseconds where a name ends in `_us`.

    memory_efficiency, flops_efficiency: the share of the peak rate that inference kernels reach.
    hop_us: one way from stage to stage, whatever the size; link_bytes_per_s adds the size's share.
    allreduce_us + 2 (n - 1) allreduce_step_us: an all-reduce of few bytes over n ranks of one host.
    launch_us: host time to launch one kernel; kernel_us: what each kernel costs the GPU beyond its bytes.
    host_us: from a micro-batch's tokens to its slot's next plan.
    idle_watts: clocked up, nothing running; decode_watts: reading memory all the time; limit_watts: the power cap.
    GPUs of different hosts (`gpus_per_host` each) talk with network_us and network_bytes_per_s.
    """

    name: str
    title: str
    memory_bytes: float
    memory_bytes_per_s: float
    memory_efficiency: float
    flops_per_s: float
    flops_efficiency: float
    hop_us: float
    link_bytes_per_s: float
    allreduce_us: float
    allreduce_step_us: float
    launch_us: float
    kernel_us: float
    host_us: float
    idle_watts: float
    decode_watts: float
    limit_watts: float
    count: int = 1
    gpus_per_host: int = 8
    network_us: float = 10.0
    network_bytes_per_s: float = 50e9

    @property
    def label(self) -> str:
        """Name for people, such as `8x RTX PRO 6000`."""
        return self.title if self.count == 1 else f"{self.count}x {self.title}"

    def hop_s(self, sender: int, receiver: int, size_bytes: float) -> float:
        """Seconds for `size_bytes` from one GPU to another: latency + size / bandwidth."""
        if sender // self.gpus_per_host == receiver // self.gpus_per_host:
            return self.hop_us * 1e-6 + size_bytes / self.link_bytes_per_s
        return (self.hop_us + self.network_us) * 1e-6 + size_bytes / self.network_bytes_per_s

    def allreduce_s(self, ranks: int, size_bytes: float) -> float:
        """Seconds for an all-reduce of `size_bytes` over `ranks` GPUs: a ring inside each host, a tree between hosts.

        Either moves 2 (n - 1) / n of the bytes over each link; a ring takes 2 (n - 1) steps, a tree 2 log2 n (the
        standard algorithms, as NCCL has them).
        """
        local = min(ranks, self.gpus_per_host)
        hosts = -(-ranks // self.gpus_per_host)
        seconds = 0.0
        if local > 1:
            seconds += (self.allreduce_us + 2 * (local - 1) * self.allreduce_step_us) * 1e-6
            seconds += 2 * (local - 1) / local * size_bytes / self.link_bytes_per_s
        if hosts > 1:
            seconds += 2 * math.ceil(math.log2(hosts)) * self.network_us * 1e-6
            seconds += 2 * (hosts - 1) / hosts * size_bytes / self.network_bytes_per_s
        return seconds


RTX_PRO_6000 = Hardware(
    name="rtx-pro-6000",
    title="RTX PRO 6000 Blackwell",
    memory_bytes=96e9,  # data sheet
    memory_bytes_per_s=1.79e12,  # data sheet
    memory_efficiency=0.80,  # assumed
    flops_per_s=500e12,  # data sheet, bfloat16 dense
    flops_efficiency=0.5,  # assumed
    hop_us=330.0,  # a server's Python send and receive over PCIe: the middle of 170-490 us that its rates allow
    link_bytes_per_s=50e9,  # PCIe 5 x16 data sheet 63 GB/s, about 0.8 of it
    allreduce_us=0.0,
    allreduce_step_us=2.5,  # assumed: 35 us over eight GPUs on PCIe
    launch_us=13.69,  # fitted
    kernel_us=1.320,  # fitted
    host_us=100.0,  # assumed
    idle_watts=50.0,  # 30-60 W seen
    decode_watts=300.0,  # about 300 W seen
    limit_watts=600.0,  # data sheet
)

H200 = Hardware(
    name="h200",
    title="H200",
    memory_bytes=141e9,  # data sheet
    memory_bytes_per_s=4.8e12,  # data sheet
    memory_efficiency=0.896,  # measured on H200: copies at 4.3 TB/s
    flops_per_s=989e12,  # data sheet, bfloat16 dense
    flops_efficiency=0.6,  # measured on H200: dense GEMM at 0.8; experts' smaller ones less
    hop_us=40.0,  # measured on H200: 30-57 us from Python
    link_bytes_per_s=340e9,  # measured on H200: peer to peer by NVLink
    allreduce_us=8.0,  # measured on H200: one-shot all-reduce 6.4-9.6 us in a graph
    allreduce_step_us=0.5,  # assumed
    launch_us=22.0,  # measured on H200: a tiny eager op
    kernel_us=1.33,  # measured on H200: 2.9 ms beyond the bytes of a step of 48 layers
    host_us=100.0,  # assumed
    idle_watts=120.0,  # assumed, clocked up
    decode_watts=500.0,  # measured on H200: 490 W at 8 requests
    limit_watts=700.0,  # data sheet
)

H100 = msgspec.structs.replace(
    H200,
    name="h100",
    title="H100 SXM",
    memory_bytes=80e9,  # data sheet
    memory_bytes_per_s=3.35e12,  # data sheet
)

B200 = msgspec.structs.replace(
    H200,
    name="b200",
    title="B200",
    memory_bytes=180e9,  # data sheet
    memory_bytes_per_s=7.7e12,  # data sheet
    memory_efficiency=0.85,  # assumed
    flops_per_s=2250e12,  # data sheet, bfloat16 dense
    flops_efficiency=0.5,  # assumed
    link_bytes_per_s=680e9,  # twice H200's NVLink (data sheet), same share reached
    idle_watts=150.0,  # assumed
    decode_watts=650.0,  # assumed
    limit_watts=1000.0,  # data sheet
)

PROFILES: dict[str, Hardware] = {h.name: h for h in (RTX_PRO_6000, H200, H100, B200)}


def load_hardware(name: str) -> Hardware:
    """Return the profile called `name` (`h200`, `8x-rtx-pro-6000`) or read from a TOML file. Raise ConfigError."""
    if name.endswith(".toml"):
        return _from_toml(Path(name))
    match = re.fullmatch(r"(?:(\d+)x-)?([a-z0-9-]+)", name)
    if match is None or match[2] not in PROFILES:
        raise ConfigError(
            f"emulate: no hardware profile {name!r}: use {', '.join(PROFILES)} (with a count: 8x-h200) or a .toml file"
        )
    return with_count(PROFILES[match[2]], int(match[1] or 1))


def recognise(gpu_name: str) -> Hardware | None:
    """The built-in profile of a GPU by the name its driver (or a label) gives it; None when there is none."""
    words = gpu_name.upper().replace("-", " ")
    marks = {"RTX PRO 6000": RTX_PRO_6000, "H200": H200, "H100": H100, "B200": B200}
    return next((hardware for mark, hardware in marks.items() if re.search(rf"(?<![A-Z]){mark}", words)), None)


def with_count(hardware: Hardware, count: int) -> Hardware:
    """The same GPU, `count` times. Raise ConfigError outside 1 to MAX_GPUS."""
    if not 1 <= count <= MAX_GPUS:
        raise ConfigError(f"emulate: {count} GPUs: the count must be from 1 to {MAX_GPUS}")
    return msgspec.structs.replace(hardware, count=count)


def _from_toml(path: Path) -> Hardware:
    try:
        fields: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"emulate: cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"emulate: {path} is not TOML: {error}") from None
    base = fields.pop("base", None)
    if base is not None:
        if base not in PROFILES:
            raise ConfigError(f"emulate: {path}: no base profile {base!r}: use one of {', '.join(PROFILES)}")
        fields = {**msgspec.to_builtins(PROFILES[base]), **fields}
    try:
        hardware = msgspec.convert({"name": path.stem, "title": path.stem, **fields}, Hardware, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"emulate: {path}: {error}") from None
    _check(path, hardware)
    return with_count(hardware, hardware.count)


def _check(path: Path, hardware: Hardware) -> None:
    for field in ("memory_bytes", "memory_bytes_per_s", "flops_per_s", "link_bytes_per_s", "network_bytes_per_s"):
        if not getattr(hardware, field) > 0:
            raise ConfigError(f"emulate: {path}: {field} must be above 0")
    for field in ("memory_efficiency", "flops_efficiency"):
        if not 0 < getattr(hardware, field) <= 1:
            raise ConfigError(f"emulate: {path}: {field} must be above 0 and at most 1")
    for field in ("hop_us", "allreduce_us", "allreduce_step_us", "launch_us", "kernel_us", "host_us", "network_us"):
        if not 0 <= getattr(hardware, field) < 1e9:
            raise ConfigError(f"emulate: {path}: {field} must be from 0 to 1e9 microseconds")
    if hardware.gpus_per_host < 1:
        raise ConfigError(f"emulate: {path}: gpus_per_host must be at least 1")
    if not 0 <= hardware.idle_watts <= hardware.decode_watts <= hardware.limit_watts:
        raise ConfigError(f"emulate: {path}: watts must satisfy 0 <= idle <= decode <= limit")
