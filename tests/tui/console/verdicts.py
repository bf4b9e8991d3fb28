"""A diagnosis as the screens get it."""

from __future__ import annotations

from sessions.messages import Estimate, VerdictOn, Verdicts
from tests.tui.console.feed import SOURCE

VERDICTS = Verdicts(
    source=SOURCE,
    t_ns=1,
    headline="thundering herd (fixing it gives 2.6-3.5x)",
    verdicts=[
        VerdictOn(
            "herd", "holds", Estimate(2.6, 3.1, 3.5), ["1.0 waves of 8", "but C is small"],
            "rebalance", "admission", "rebalance",
        ),
        VerdictOn("host", "unknown", None, ["missing: spans"], ""),
        VerdictOn("interconnect", "refuted", None, ["14 KB a hop"], ""),
    ],
    measured_tokens_per_s=95.6,
    expected_tokens_per_s=Estimate(230, 270, 310),
    herd_index=1.0,
    waves=1.0,
    why={"L": "spans of every stage are needed"},
    scored="graphs: predicted 1.0x, got 1.0x",
)  # fmt: skip
