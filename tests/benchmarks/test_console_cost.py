"""What the console costs: a frame, the first paint, a key press. Figures are printed; targets are in the names."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import balanced
from tests.tui.console.terminal import Terminal
from tui.console.app import ConsoleApp
from tui.console.options import ConsoleOptions

pytestmark = pytest.mark.benchmark

DRAW = """
import sys, time, resource
from pathlib import Path
from tests.tui.console.fakes import FakeChannel, FakeSession
from tests.tui.console.feed import balanced
from tui.console.app import ConsoleApp
from tui.console.options import ConsoleOptions

SECONDS = 10
feed = balanced(stages={stages}, gpus={stages})

class Playing(FakeSession):
    def fill(self, store):
        now = feed.start_ns + time.monotonic_ns() - self.began
        while self.ticks and self.ticks[0][0] <= now:
            store.apply(self.ticks.pop(0)[1])
        store.advance(now)

session = Playing(channel=FakeChannel())
session.ticks = [(feed.start_ns, feed.opening()), *feed.frames(SECONDS + 5)]
session.began = time.monotonic_ns()
app = ConsoleApp(ConsoleOptions(), session, data=Path("/nonexistent"), guard=False)

frames = 0
draw = app.frame
def counted():
    global frames
    frames += 1
    draw()
app.frame = counted

def begin():
    app.cpu, app.wall = time.process_time(), time.monotonic()
    app.first = frames
def end():
    share = (time.process_time() - app.cpu) / (time.monotonic() - app.wall)
    rate = (frames - app.first) / (time.monotonic() - app.wall)
    app.exit(message="")
    Path({out!r}).write_text(f"{{share}} {{rate}}")
app.call_later(lambda: app.set_timer(2, begin) and app.set_timer(2 + SECONDS, end))
app.run()
"""


@pytest.mark.parametrize("stages", [8, 64])
def test_share_of_a_core_at_ten_frames_a_second_below_a_quarter_with_eight_stages(tmp_path: Path, stages: int) -> None:
    out = tmp_path / "share"
    terminal = Terminal({}, program=DRAW.format(stages=stages, out=str(out)))
    try:
        terminal.exit_code(60)
        share, rate = (float(figure) for figure in out.read_text().split())
    finally:
        terminal.end()
    print(f"\nconsole, {stages} stages and GPUs, 120x40: {share * 100:.1f} % of a core at {rate:.1f} frames/s")
    assert rate > 0


def test_first_paint_below_a_second() -> None:
    times = []
    for _ in range(5):
        began = time.perf_counter()
        terminal = Terminal({"emulate": "8x-rtx-pro-6000", "model": "kimi-k2.6", "pp": 8})
        try:
            assert terminal.wait_for(rb"herdscope", 20.0, every=0.01)
            times.append(time.perf_counter() - began)
        finally:
            terminal.end()
    print(f"\nfirst paint: median {statistics.median(times):.2f} s (of {', '.join(f'{t:.2f}' for t in times)})")


def test_imports_stay_light() -> None:
    code = (
        "import sys, tui.console.app; print(sorted(set(sys.modules) & {'torch', 'numpy', 'transformers', 'sqlite3'}))"
    )
    began = time.perf_counter()
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    print(f"\nimport tui.console.app: {time.perf_counter() - began:.2f} s, heavy modules: {loaded.strip()}")
    assert "torch" not in loaded


async def test_a_key_press_is_answered_within_a_tenth_of_a_second() -> None:
    session = FakeSession(balanced(), 20.0, FakeChannel())
    app = ConsoleApp(ConsoleOptions(), session, data=Path("/nonexistent"), clock=False, guard=False)
    times = []
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        app.frame()
        await pilot.pause()
        assert isinstance(session.channel, FakeChannel)
        for _ in range(20):
            before = len(session.channel.asked)
            began = time.perf_counter()
            await pilot.press("d")
            app.frame()
            times.append((time.perf_counter() - began) * 1000)
            assert len(session.channel.asked) == before + 1
    print(f"\nkey to command and redraw: median {statistics.median(times):.1f} ms, worst {max(times):.1f} ms")
