"""Figures as people read them: three significant digits and a unit."""

from __future__ import annotations

NOT_KNOWN = "n/a"


def duration(ns: float) -> str:
    """ns, us, ms or s, without needless zeros."""
    for size, unit in ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us")):
        if ns >= size:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def clock(ns: int) -> str:
    """Hours, minutes and seconds of a length of time."""
    seconds = max(0, ns) // 1_000_000_000
    hours, rest = divmod(seconds, 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours:d}:{minutes:02d}:{seconds:02d}"


def size(count: float | None) -> str:
    """Bytes in binary units."""
    if count is None:
        return NOT_KNOWN
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{_three(count / (1 << power))} {unit}"
    return f"{count:.0f} B"


def quantity(value: float | None) -> str:
    """A count or rate: three digits up to 999, thousands separated above, short beyond a million."""
    if value is None:
        return NOT_KNOWN
    if value >= 1_000_000:
        return f"{_three(value / 1_000_000)}M"
    if value >= 1000:
        return f"{value:,.0f}"
    return _three(value)


def percent(ratio: float | None) -> str:
    """A ratio as whole percent."""
    return NOT_KNOWN if ratio is None else f"{ratio * 100:.0f} %"


def _three(value: float) -> str:
    text = f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
