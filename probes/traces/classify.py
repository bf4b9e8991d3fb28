"""What a GPU operation is for, told from its name: computing, moving data between ranks, or moving memory."""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

_NAMES = 65536


class OpKind(IntEnum):
    """COMPUTE: a kernel that computes. COMM: moves data between ranks. MEMORY: a copy or fill on one GPU."""

    COMPUTE = 0
    COMM = 1
    MEMORY = 2


_COMM = (
    "nccl",
    "rccl",
    "multimem",
    "symmmem",
    "oneshot",
    "twoshot",
    "crossdevicereduce",
    "allreduce",
    "allgather",
    "reducescatter",
    "alltoall",
    "deepep",
    "nvshmem",
    "quickreduce",
    "mscclpp",
    "memcpy ptop",
    "internode",
    "intranode",
)
_EXPERT = ("moe", "expert", "groupedgemm", "groupedmm", "groupgemm", "ptrgrouped", "groupproblem", "siluandmulmasked")
_MEMORY = ("memcpy", "memset")
_GRAPH_LAUNCH = re.compile(r"graphlaunch", re.IGNORECASE)
_LAUNCH = re.compile(r"launch|memcpy|memset", re.IGNORECASE)
_HOST_BLOCKED = re.compile(r"synchronize|cudaStreamWaitValue|cuStreamWaitValue", re.IGNORECASE)


@lru_cache(maxsize=_NAMES)
def op_kind(name: str) -> OpKind:
    """Class of a GPU operation. Communication is more than NCCL: symmetric memory, custom all-reduce, DeepEP."""
    plain = _plain(name)
    if any(word in plain for word in _COMM):
        return OpKind.COMM
    return OpKind.MEMORY if plain.startswith(_MEMORY) else OpKind.COMPUTE


@lru_cache(maxsize=_NAMES)
def is_expert(name: str) -> bool:
    """Whether this kernel computes experts (fused or grouped matrix products of an MoE layer)."""
    plain = _plain(name)
    return any(word in plain for word in _EXPERT) and op_kind(name) is OpKind.COMPUTE


@lru_cache(maxsize=_NAMES)
def is_graph_launch(name: str) -> bool:
    """Whether this runtime call replays a CUDA graph: one launch, many kernels."""
    return bool(_GRAPH_LAUNCH.search(name))


@lru_cache(maxsize=_NAMES)
def is_launch(name: str) -> bool:
    """Whether this runtime call hands work to the GPU."""
    return bool(_LAUNCH.search(name))


@lru_cache(maxsize=_NAMES)
def is_host_blocked(name: str) -> bool:
    """Whether this runtime call keeps the host waiting for the GPU."""
    return bool(_HOST_BLOCKED.search(name))


def is_told_apart(name: str) -> bool:
    """Whether this runtime call matters by itself: it launches, or it keeps the host waiting."""
    return is_launch(name) or is_host_blocked(name)


def _plain(name: str) -> str:
    """Lower case without underscores, so that one word finds all its spellings."""
    return name.lower().replace("_", "")
