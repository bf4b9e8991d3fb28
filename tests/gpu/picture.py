"""Takes pictures of the console on a real engine: `python -m tests.gpu.picture FOLDER [herdscope run flags]`.

The console runs without a terminal; a picture is taken after some seconds under load, and again after the admission
policy was turned.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from tui.cli.engine_defaults import resolve
from tui.console.app import ConsoleApp
from tui.console.options import ConsoleOptions

SIZE = (130, 44)
READY_S = 200.0
LOAD_S = 12.0


async def take(folder: Path, chosen: dict[str, object], concurrency: int) -> None:
    """Write live.svg and rebalance.svg."""
    app = ConsoleApp(ConsoleOptions(engine=resolve(chosen), concurrency=concurrency))
    async with app.run_test(size=SIZE) as pilot:
        for _ in range(int(READY_S)):
            await pilot.pause(1.0)
            if app.store.queue is not None and app.store.queue.output_tokens_total > 0:
                break
        await pilot.pause(LOAD_S)
        (folder / "live.svg").write_text(app.export_screenshot(title="herdscope"))
        for _ in range(3):
            await pilot.press("a")
            await pilot.pause(0.5)
        await pilot.pause(LOAD_S)
        (folder / "rebalance.svg").write_text(app.export_screenshot(title="herdscope"))
    app.finish()


def main(arguments: list[str]) -> None:
    """Flags are KEY=VALUE, as in EngineConfig and Knobs; concurrency=C is the load."""
    folder = Path(arguments[0])
    chosen: dict[str, object] = {}
    for argument in arguments[1:]:
        key, _, value = argument.partition("=")
        chosen[key] = int(value) if value.isdigit() else {"on": True, "off": False}.get(value, value)
    concurrency = int(str(chosen.pop("concurrency", 16)))
    asyncio.run(take(folder, chosen, concurrency))


if __name__ == "__main__":
    main(sys.argv[1:])
