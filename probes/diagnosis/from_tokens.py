"""Evidence from the instants at which a client received tokens, and nothing else."""

from __future__ import annotations

import msgspec

from probes.diagnosis.evidence import Evidence


class TokenLine(msgspec.Struct, frozen=True):
    """One token: of which request, and when (seconds of any clock)."""

    request: str | int
    t: float


class TokenFileError(ValueError):
    """A file of token times that cannot be read; one line that says what is wrong."""


_decode = msgspec.json.Decoder(TokenLine).decode


def evidence_from_tokens(text: str, name: str, stages: int | None) -> Evidence:
    """Read lines of `{"request": ..., "t": seconds}`. `stages` must be told: tokens do not show them."""
    times: list[int] = []
    streams: set[str | int] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            token = _decode(line)
        except msgspec.DecodeError as error:
            raise TokenFileError(f'{name}:{number}: not {{"request": ..., "t": seconds}} ({error})') from None
        times.append(round(token.t * 1e9))
        streams.add(token.request)
    if not times:
        raise TokenFileError(f"{name}: no tokens in it")
    times.sort()
    span = (times[-1] - times[0]) / 1e9
    return Evidence(
        source="tokens",
        engine="unknown",
        stages=stages or 1,
        parallelism="pp" if stages and stages > 1 else "unknown",
        least_slots=stages or 1,
        tokens_per_s=len(times) / span if span > 0 else None,
        token_times=times,
        streams=len(streams),
        cannot_see=["stages, slots, queues and GPUs: only when tokens reached the client"],
        notes=[] if stages else ["the number of stages is not told: give --stages"],
    )
