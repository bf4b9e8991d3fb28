"""What this machine has and lacks for Herdscope, and how to mend it."""

from __future__ import annotations

from probes.doctor.checks import examine
from probes.doctor.finding import Finding

__all__ = ["Finding", "examine"]
