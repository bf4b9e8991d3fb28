"""`python -m tui.console.session.diagnoser_process SOCKET`: diagnoses a live session and publishes what it finds.

A process of its own, so that the screens never wait for the arithmetic. It ends with the channel.
"""

from __future__ import annotations

import os
import sys
import time

from probes.diagnosis.live import LiveDiagnoser
from sessions.channel.interface import ChannelError
from sessions.channel.unix import connect_unix
from sessions.clock import source_id
from sessions.messages import EngineState, KnobState, QueueFrame, StageFrame

EVERY_S = 1.0
CONNECT_S = 10.0
NICENESS = 5


def main(address: str) -> int:
    """Diagnose the session at `address` until its channel closes."""
    os.nice(NICENESS)
    try:
        channel = connect_unix(address, source_id("probe"), "probe", CONNECT_S)
        messages = channel.subscribe((EngineState, KnobState, QueueFrame, StageFrame))
        diagnoser = LiveDiagnoser(channel.source)
        due = time.monotonic()
        while True:
            first = messages.get(EVERY_S)
            for message in ([first] if first is not None else []) + messages.drain():
                diagnoser.feed(message)
            if time.monotonic() >= due:
                due = time.monotonic() + EVERY_S
                found = diagnoser.verdicts(time.monotonic_ns())
                if found is not None:
                    channel.publish(found)
                    mark = diagnoser.change(found)
                    if mark is not None:
                        channel.publish(mark)
    except ChannelError:
        return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
