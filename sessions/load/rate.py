"""A rate of arrivals that may ramp and be changed, as operational time.

An arrival process of unit rate is stretched by the integral of the rate: its n-th arrival, at operational time u,
happens when Lambda(t) = u. This is exact for a Poisson process of any rate, and keeps the burstiness of others.
Source: the time-change theorem (Daley and Vere-Jones, An Introduction to the Theory of Point Processes, 7.4).
"""

from __future__ import annotations

import math


class Rate:
    """Arrivals a second: `start` at `t_ns`, going linearly to `end` within `ramp_s`, constant from there."""

    def __init__(self, t_ns: int, start: float, end: float | None = None, ramp_s: float = 0.0) -> None:
        self._origin_ns = t_ns
        self._origin = 0.0
        self._start = start
        self._end = start if end is None else end
        self._ramp_s = ramp_s if end is not None else 0.0

    @property
    def value(self) -> float:
        """The rate that holds after the ramp."""
        return self._end

    def change(self, now_ns: int, rate: float) -> None:
        """Hold `rate` from now on; operational time goes on from where it is."""
        self._origin = self.operational(now_ns)
        self._origin_ns = now_ns
        self._start = self._end = rate
        self._ramp_s = 0.0

    def operational(self, now_ns: int) -> float:
        """Arrivals expected until `now_ns`."""
        elapsed = max(0, now_ns - self._origin_ns) / 1e9
        ramped = min(elapsed, self._ramp_s)
        slope = (self._end - self._start) / self._ramp_s if self._ramp_s else 0.0
        return self._origin + self._start * ramped + slope * ramped**2 / 2 + self._end * (elapsed - ramped)

    def instant_ns(self, operational: float) -> int | None:
        """When operational time reaches `operational`; None if it never will (the rate is 0)."""
        wanted = operational - self._origin
        if wanted <= 0:
            return self._origin_ns
        within_ramp = (self._start + self._end) / 2 * self._ramp_s
        if wanted > within_ramp:
            if self._end <= 0:
                return None
            seconds = self._ramp_s + (wanted - within_ramp) / self._end
        else:
            slope = (self._end - self._start) / self._ramp_s
            root = math.sqrt(max(0.0, self._start**2 + 2 * slope * wanted))
            seconds = 2 * wanted / (self._start + root)
        return self._origin_ns + round(seconds * 1e9)
