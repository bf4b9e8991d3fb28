"""The power that a diagnosis expects of each GPU reaches the store by the GPU's index."""

from __future__ import annotations

from sessions.messages import Estimate, GpuFrame, Verdicts
from tui.console.store.store import Store


def test_by_index_and_only_of_gpus_that_are_seen() -> None:
    store = Store()
    store.apply([GpuFrame(source="h/engine/1", t_ns=1, index=3, uuid="GPU-3", name="H200")])
    rate = Estimate(1.0, 2.0, 3.0)
    told = Verdicts(
        source="h/probe/2",
        t_ns=2,
        headline="a herd",
        verdicts=[],
        expected_tokens_per_s=rate,
        expected_watts={"GPU-3": 300.0, "GPU-of-another-session": 200.0},
    )
    store.apply([told])
    assert store.expected is not None and store.expected.watts == {3: 300.0}
