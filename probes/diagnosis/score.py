"""What became of a prediction, once the knob was turned."""

from __future__ import annotations

import msgspec

from engine.emulated.band import Band
from probes.diagnosis.diagnose import Diagnosis
from probes.diagnosis.verdict import Verdict
from sessions.knobs import Knobs


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """A gain predicted and the gain got. knob: what was turned, `name = value`."""

    knob: str
    predicted: Band
    got: float

    @property
    def kept(self) -> bool:
        """Whether what was got lies in the predicted band."""
        return self.predicted.contains(self.got)

    def __str__(self) -> str:
        word = "kept" if self.kept else "missed"
        return (
            f"{self.knob}: predicted {self.predicted.low:.2g}-{self.predicted.high:.2g}x, got {self.got:.2g}x ({word})"
        )


def score(before: Diagnosis, after: Diagnosis, old: Knobs, new: Knobs) -> Score | None:
    """Score the prediction whose knob is what changed; None when nothing was predicted for it, or nothing measured.

    Throughput is compared per request: the load may have changed between the two.
    """
    changed = {name: getattr(new, name) for name in new.__struct_fields__ if getattr(new, name) != getattr(old, name)}
    predicted = _predicted(before, changed)
    if predicted is None or predicted.gain is None:
        return None
    earlier, later = _per_request(before), _per_request(after)
    if not earlier or not later:
        return None
    text = ", ".join(f"{name} = {value}" for name, value in changed.items())
    return Score(knob=text, predicted=predicted.gain, got=later / earlier)


def _predicted(before: Diagnosis, changed: dict[str, object]) -> Verdict | None:
    """The prediction for a knob that was turned as proposed, or, for an admission policy, to any that spreads."""
    for verdict in before.causes:
        if verdict.knob not in changed:
            continue
        value = changed[verdict.knob]
        if value == verdict.value or (verdict.knob == "admission" and value != "greedy"):
            return verdict
    return None


def _per_request(diagnosis: Diagnosis) -> float | None:
    rate, requests = diagnosis.measured_tokens_per_s, sum(diagnosis.cohorts)
    return rate / requests if rate and requests else None
