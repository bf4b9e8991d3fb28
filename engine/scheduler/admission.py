"""Admission policies: how many requests, decode rows and prompt tokens a slot takes when it is visited."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from sessions.knobs import Admission


class Load(NamedTuple):
    """What a policy sees when a slot is visited.

    live: requests that run or could (waiting ones count up to the rows there are). decoding: running requests past
    their prefill. prompt_tokens: not yet scheduled, of waiting and running requests. turn: micro-batches so far.
    """

    slots: int
    live: int
    decoding: int
    prompt_tokens: int
    turn: int
    max_micro_batch: int
    token_budget: int


class Quota(NamedTuple):
    """Most requests in the slot, decodes it takes, decodes it may keep from before, and prompt tokens to run."""

    requests: int
    decodes: int
    keep: int
    prompt_tokens: int


class AdmissionPolicy(Protocol):
    """`pinned`: a request stays in its slot until it ends, unless the slot is over its quota."""

    @property
    def pinned(self) -> bool: ...

    def quota(self, load: Load) -> Quota: ...


class Greedy:
    """The first slot with room takes everything that waits: what SGLang and vLLM do, and how herds form."""

    pinned = True

    def quota(self, load: Load) -> Quota:
        return Quota(load.max_micro_batch, load.max_micro_batch, load.max_micro_batch, load.token_budget)


class Capped:
    """No slot holds more than its even share of all live requests, prefills included."""

    pinned = True

    def quota(self, load: Load) -> Quota:
        share = min(load.max_micro_batch, _ceil(load.live, load.slots))
        return Quota(share, share, share, load.token_budget)


class DecodeCap:
    """No slot decodes more than its even share; prefill is bounded by the token budget alone."""

    pinned = True

    def quota(self, load: Load) -> Quota:
        share = min(load.max_micro_batch, _ceil(load.decoding, load.slots))
        return Quota(load.max_micro_batch, share, share, load.token_budget)


class Rebalance:
    """Requests belong to no slot: each micro-batch draws its share of those that are ready, as gLLM does.

    The rounding of the share rotates with the turn, so that a remainder moves over the slots. Prompts are spread over
    the slots as well, in chunks not smaller than 1/SMALLEST_CHUNK of the token budget: each chunk of an MoE reads
    all of its experts anew.
    """

    pinned = False
    SMALLEST_CHUNK = 4

    def quota(self, load: Load) -> Quota:
        jitter = load.turn % load.slots
        most = load.max_micro_batch
        chunk = max(_ceil(load.prompt_tokens, load.slots), load.token_budget // self.SMALLEST_CHUNK, 1)
        return Quota(
            requests=min(most, max(1, _ceil(load.live, load.slots))),
            decodes=min(most, max(1, (load.decoding + jitter) // load.slots)),
            keep=min(most, max(1, _ceil(load.decoding, load.slots))),
            prompt_tokens=min(load.token_budget, chunk),
        )


POLICIES: dict[Admission, AdmissionPolicy] = {
    "greedy": Greedy(),
    "capped": Capped(),
    "decode-cap": DecodeCap(),
    "rebalance": Rebalance(),
}


def _ceil(amount: int, parts: int) -> int:
    return -(-amount // parts)
