"""A switch of the layout, ranks as threads of one process: the bits of a fresh load, and one layer's extra memory."""

from __future__ import annotations

import threading
from collections import defaultdict
from queue import Queue
from typing import Any

import msgspec
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import Parameter, parameters_of
from engine.models.dummy import dummy_parameter
from engine.parallel.layout import Layout, ep_layout, held_ranges, pp_layout
from engine.parallel.reshard import reshard
from engine.presets import DEEPSEEK_TINY, QWEN3_TINY
from engine.worker.memory import largest_unit_bytes, weight_bytes

CPU = torch.device("cpu")


class Wires:
    """Queues between threads that stand for ranks; what is sent is copied, as a network does."""

    def __init__(self) -> None:
        self.queues: dict[tuple[int, int], Queue[Tensor]] = defaultdict(Queue)


class Port:
    def __init__(self, wires: Wires, rank: int) -> None:
        self.wires, self.rank = wires, rank

    def exchange(self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]]) -> None:
        for tensor, peer in sends:
            # Bytes on the wire are nobody's memory: kept out of the rank's account as bytes.
            self.wires.queues[self.rank, peer].put(tensor.detach().numpy().copy())  # type: ignore[arg-type]
        for tensor, peer in receives:
            tensor.copy_(torch.from_numpy(self.wires.queues[peer, self.rank].get(timeout=30)))  # type: ignore[arg-type]


class LiveBytes(TorchDispatchMode):
    """The most bytes of tensor storage, made while it is on in this thread, that were alive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.alive = WeakTensorKeyDictionary()
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self.alive[tensor] = True
        self.peak = max(self.peak, self.now())
        return out

    def now(self) -> int:
        storages = {id_of(t): t.untyped_storage().nbytes() for t in self.alive}
        return sum(storages.values())


def id_of(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def fresh(parameters: list[Parameter], layout: Layout, rank: int) -> dict[str, Tensor]:
    return {
        p.name: dummy_parameter(p, held_ranges(p, layout, rank), torch.float32, CPU)
        for p in parameters
        if held_ranges(p, layout, rank)
    }


def switch_all(
    parameters: list[Parameter], before: Layout, after: Layout, world: int
) -> tuple[list[dict[str, Tensor]], list[int], list[int]]:
    wires = Wires()
    weights: list[dict[str, Tensor]] = [{} for _ in range(world)]
    peaks, reported = [0] * world, [0] * world
    failures: list[BaseException] = []

    def rank_thread(rank: int) -> None:
        try:
            with LiveBytes() as live:
                weights[rank] = fresh(parameters, before, rank)
                start = live.now()
                live.peak = start
                report = reshard(
                    parameters, before, after, rank, weights[rank], CPU, lambda _: torch.float32, Port(wires, rank)
                )
                peaks[rank] = live.peak - max(start, live.now())
                reported[rank] = report.extra_bytes
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=rank_thread, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures, failures
    return weights, peaks, reported


@pytest.mark.parametrize("config", [QWEN3_TINY, DEEPSEEK_TINY], ids=lambda c: c.family)
@pytest.mark.parametrize(("pp", "ep"), [(2, 2), (4, 4), (4, 2), (1, 4)])
def test_bits_of_a_fresh_load_and_one_layers_extra_memory(config: ModelConfig, pp: int, ep: int) -> None:
    config = msgspec.structs.replace(config, layers=5)
    parameters = parameters_of(config)
    layer = largest_unit_bytes(config, torch.float32)
    staged, sharded = pp_layout(config, pp), ep_layout(config, ep)
    for before, after in ((staged, sharded), (sharded, staged)):
        weights, peaks, reported = switch_all(parameters, before, after, max(pp, ep))
        for rank, held in enumerate(weights):
            expected = fresh(parameters, after, rank)
            assert held.keys() == expected.keys()
            assert all(torch.equal(held[name], expected[name]) for name in expected)
            assert sum(t.numel() * t.itemsize for t in held.values()) == weight_bytes(
                config, after, rank, torch.float32
            )
            assert peaks[rank] <= layer, f"rank {rank} held {peaks[rank]} bytes more, a layer is {layer}"
            assert reported[rank] <= layer
