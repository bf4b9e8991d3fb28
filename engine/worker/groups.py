"""The process groups of a rank: activations and token feedback on groups of their own, one for the shards' sums."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor


class PeerLost(RuntimeError):
    """An operation failed because another rank is gone. That rank is the cause, not this one."""


TIMEOUT = timedelta(minutes=30)
"""A dead peer is noticed by its closed connection and by the driver; this only bounds a wait that both would miss."""


class Groups:
    """Point-to-point and collective operations between ranks. With one rank there are none and nothing is opened."""

    def __init__(self, rank: int, world: int, device: torch.device, stages: int, shards: int) -> None:
        """Join the world (torchrun environment) and open a group for each pair that talks. All ranks call it alike."""
        self.rank = rank
        self._sending: deque[tuple[dist.Work, Tensor]] = deque()
        self._activations: dict[tuple[int, int], dist.ProcessGroup] = {}
        self._feedback: dist.ProcessGroup | None = None
        self._shards: dist.ProcessGroup | None = None
        self.open = world > 1
        if not self.open:
            return
        cuda = device.type == "cuda"
        dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT, device_id=device if cuda else None)
        for stage in range(stages - 1):
            self._activations[stage, stage + 1] = dist.new_group([stage, stage + 1])
        if stages > 1:
            self._feedback = dist.new_group([0, stages - 1])
        if shards > 1:
            self._shards = dist.new_group(list(range(shards)))

    def send_hidden(self, hidden: Tensor) -> None:
        """Start sending to the next stage; the tensor is kept until it has gone."""
        self._send(hidden, self.rank + 1, self._activations[self.rank, self.rank + 1])

    def receive_hidden(self, hidden: Tensor) -> None:
        """Fill `hidden` from the previous stage (on CUDA: the stream waits, the host does not)."""
        with _peers():
            dist.recv(hidden, self.rank - 1, self._activations[self.rank - 1, self.rank])

    def send_tokens(self, tokens: Tensor) -> None:
        """The last stage starts sending sampled tokens to the first."""
        assert self._feedback is not None
        self._send(tokens, 0, self._feedback)

    def receive_tokens(self, tokens: Tensor, last_rank: int) -> None:
        """The first stage fills `tokens` with the next micro-batch's from the last one."""
        with _peers():
            dist.recv(tokens, last_rank, self._feedback)

    def _send(self, tensor: Tensor, to: int, group: dist.ProcessGroup) -> None:
        while self._sending and self._sending[0][0].is_completed():
            self._sending.popleft()
        with _peers():
            work = dist.isend(tensor, to, group)
        if work is not None:
            self._sending.append((work, tensor))

    def finish_sends(self) -> None:
        """Wait until every send has gone."""
        while self._sending:
            with _peers():
                self._sending.popleft()[0].wait()

    def sum_shards(self, tensor: Tensor) -> Tensor:
        """Sum over the shards, in place."""
        with _peers():
            dist.all_reduce(tensor, group=self._shards)
        return tensor

    def join_shards(self, tensor: Tensor) -> Tensor:
        """[B, n] of every shard to [B, shards * n]."""
        parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size(self._shards))]
        with _peers():
            dist.all_gather(parts, tensor.contiguous(), group=self._shards)
        return torch.cat(parts, dim=-1)

    def exchange(self, sends: list[tuple[Tensor, int]], receives: list[tuple[Tensor, int]]) -> None:
        """Send and receive (tensor, peer) pairs over the whole world, all at once, and wait for them.

        Between any two ranks both sides list their tensors in the same order.
        """
        operations = [dist.P2POp(dist.irecv, tensor, peer) for tensor, peer in receives]
        operations += [dist.P2POp(dist.isend, tensor, peer) for tensor, peer in sends]
        if operations:
            with _peers():
                for work in dist.batch_isend_irecv(operations):
                    work.wait()

    def close(self) -> None:
        """Leave the groups; CUDA graphs that captured their operations must be gone."""
        if self.open:
            self.open = False
            dist.destroy_process_group()


@contextmanager
def _peers() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise PeerLost(str(error).splitlines()[0]) from error
