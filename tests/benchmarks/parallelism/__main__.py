"""Everything that is measured on several GPUs, in one command:

    python -m tests.benchmarks.parallelism --ranks 2 --model qwen3-30b-a3b --out FILE.json

Parts (`--parts`): table (every cell of modes x graphs x admission x depth x C, with watts and verdicts), knobs (turned
under load, and 100 toggles of the graphs), switch (pipeline to expert parallelism and back under load), traces,
telemetry (on against off), death (a rank killed in the middle of a step). Results are kept after each part and cell,
so that a run that is cut short loses nothing. On CPUs: `--device cpu --model qwen3-tiny`.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from engine.config import EngineConfig
from probes.diagnosis.diagnose import diagnose
from probes.diagnosis.from_traces import evidence_from_traces
from probes.diagnosis.report import headline
from probes.traces.load import load
from sessions.knobs import KnobName, Knobs, KnobValue
from tests.benchmarks.parallelism import cells, changes, death, traces
from tests.benchmarks.parallelism.cells import Cell, Measured
from tests.benchmarks.parallelism.session import Session, opened

PARTS = ("table", "knobs", "switch", "traces", "telemetry", "death")
UNDER_LOAD = 32


class Run:
    """The command's choices, and the results so far."""

    def __init__(self, chosen: argparse.Namespace) -> None:
        self.chosen = chosen
        self.results: dict[str, Any] = {"command": vars(chosen), "started": time.strftime("%FT%TZ", time.gmtime())}
        self.deadline = time.monotonic() + chosen.limit_s

    def keep(self, name: str, result: Any) -> None:
        """Put a part's result into the file."""
        self.results[name] = result
        if self.chosen.out:
            self.chosen.out.write_bytes(msgspec.json.format(msgspec.json.encode(self.results, enc_hook=str)))

    def config(self, telemetry: bool = True) -> EngineConfig:
        """The engine: both modes over all ranks, beginning with the first mode chosen."""
        chosen = self.chosen
        return EngineConfig(
            model=chosen.model,
            load_format="dummy",
            device=chosen.device,
            pp=chosen.ranks,
            ep=chosen.ranks,
            max_context=max(4096, chosen.prompt + chosen.output),
            max_running=256,
            telemetry=telemetry,
            knobs=Knobs(
                async_depth=chosen.ranks,
                admission="rebalance",
                cuda_graphs=chosen.device != "cpu",
                parallelism=chosen.modes[0],
            ),
        )

    def cells(self) -> Iterator[Cell]:
        """The cells of the table, so ordered that the mode changes least often."""
        chosen = self.chosen
        for mode in chosen.modes:
            policies = chosen.admission if mode == "pp" else ["greedy"]
            depths = sorted({max(1, round(part * chosen.ranks)) for part in chosen.depths}) if mode == "pp" else [1]
            for graphs, policy, depth, count in itertools.product(chosen.graphs, policies, depths, chosen.concurrency):
                if graphs or not chosen.eager_concurrency or count in chosen.eager_concurrency:
                    yield Cell(mode, graphs, policy, depth, count)


def table(run: Run, session: Session) -> None:
    """Every cell, with the predictions that another cell puts to the test."""
    measured: list[Measured] = []
    for cell in run.cells():
        if time.monotonic() > run.deadline:
            print(f"out of time before {cell}")
            break
        chosen = run.chosen
        diagnosed = cell.concurrency > 1
        measured.append(cells.measure(session, cell, chosen.prompt, chosen.output, chosen.repeat, diagnosed))
        print(cells.table(measured[-1:]).splitlines()[-1], flush=True)
        run.keep("table", measured)
    found = cells.predictions(measured)
    run.keep("predictions", [msgspec.structs.asdict(each) | {"within": each.within} for each in found])
    print(cells.table(measured))
    for each in found:
        print(
            f"{each.cell}: {each.hypothesis}, {each.knob}={each.value} predicted {each.mid:.2f}x "
            f"({each.low:.2f}-{each.high:.2f}), got {each.got:.2f}x{'' if each.within else '  OUTSIDE'}"
        )
    if found:
        print(f"{sum(each.within for each in found)} of {len(found)} predicted gains within their band")


def knobs(run: Run, session: Session) -> None:
    """Every scheduler knob and the graphs turned under load; then 100 toggles of the graphs."""
    ranks = run.chosen.ranks
    turns: list[tuple[KnobName, KnobValue]] = [
        ("async_depth", 1),
        ("async_depth", 2 * ranks),
        ("async_depth", ranks),
        ("admission", "greedy"),
        ("admission", "capped"),
        ("admission", "rebalance"),
        ("max_micro_batch", 8),
        ("max_micro_batch", 256),
    ]
    if run.chosen.device != "cpu":
        turns += [("cuda_graphs", False), ("cuda_graphs", True)]
    found = changes.under_load(session, turns, UNDER_LOAD, run.chosen.prompt, run.chosen.output, 0.3)
    run.keep("knobs", found)
    print(changes.told(found), flush=True)
    if run.chosen.device != "cpu":
        toggles: list[tuple[KnobName, KnobValue]] = [("cuda_graphs", on) for _ in range(100) for on in (False, True)]
        toggled = changes.under_load(session, toggles, UNDER_LOAD, run.chosen.prompt, run.chosen.output, 0.03)
        run.keep("toggles", toggled)
        off = [each.to_reply_ms for each in toggled.changes if each.value is False]
        on = [each.to_reply_ms for each in toggled.changes if each.value is True]
        print(f"100 toggles: off {statistics.median(off):.1f} ms, largest {max(off):.1f}; on ", end="")
        print(f"{statistics.median(on):.1f}, largest {max(on):.1f}")
        print(changes.told(toggled).splitlines()[-1], flush=True)


def switch(run: Run, session: Session) -> None:
    """To the other mode and back, three times, with requests running."""
    one, other = run.config().knobs.parallelism, "ep" if run.config().knobs.parallelism == "pp" else "pp"
    session.set_knobs(run.config().knobs)
    turns: list[tuple[KnobName, KnobValue]] = [("parallelism", mode) for _ in range(3) for mode in (other, one)]
    found = changes.under_load(session, turns, UNDER_LOAD, run.chosen.prompt, run.chosen.output, 1.5)
    run.keep("switch", found)
    print(changes.told(found), flush=True)


def trace(run: Run, session: Session) -> None:
    """Traces of the herd and the even split, graphs and eager, and of expert parallelism; and what is read in them."""
    ranks, told = run.chosen.ranks, {}
    graphs = (True, False) if run.chosen.device != "cpu" else (False,)
    chosen = [Cell("pp", on, policy, ranks, 16) for policy in ("greedy", "rebalance") for on in graphs]
    folder = run.chosen.traces or Path(tempfile.mkdtemp(prefix="traces-"))
    for cell in [*chosen, Cell("ep", graphs[0], "greedy", 1, 16)]:
        name = f"{cell.parallelism}-{cell.admission}-{'graphs' if cell.cuda_graphs else 'eager'}"
        steps = run.chosen.profile_steps * (ranks if cell.parallelism == "pp" and cell.admission != "greedy" else 1)
        paths = traces.record(session, cell, steps, run.chosen.prompt, folder / name)
        told[name] = {"bytes": [path.stat().st_size for path in paths], "paths": [str(path) for path in paths]}
        try:
            told[name]["headline"] = headline(diagnose(evidence_from_traces(load(paths))))
        except Exception as error:  # a trace that cannot be read is a result
            told[name]["unreadable"] = str(error)
        run.keep("traces", told)
        print(f"{name}: {told[name]}", flush=True)


def telemetry(run: Run) -> None:
    """Throughput with spans and without, in engines one after the other, twice."""
    cell = Cell(run.config().knobs.parallelism, run.chosen.device != "cpu", "rebalance", run.chosen.ranks, UNDER_LOAD)
    each: dict[bool, list[float]] = {True: [], False: []}
    for on in (True, False, True, False)[: run.chosen.telemetry_engines]:
        with opened(run.config(telemetry=on)) as session:
            measured = cells.measure(session, cell, run.chosen.prompt, run.chosen.output, 5)
            each[on] += measured.itl_ms_each
    found = {"on_ms": each[True], "off_ms": each[False]}
    cost = statistics.median(each[True]) / statistics.median(each[False]) - 1
    run.keep("telemetry", {**found, "cost": cost})
    print(f"telemetry at C={UNDER_LOAD}: {cost:+.2%} of the inter-token time; {found}", flush=True)


def dies(run: Run) -> None:
    """A rank killed, and the engine started again."""
    found = death.kill_a_rank(run.config(), UNDER_LOAD, run.chosen.prompt)
    run.keep("death", found)
    print(msgspec.json.encode(found).decode(), flush=True)


def attempted(name: str, part: Callable[[], None]) -> None:
    """Do a part; its failure is told and does not cost the others."""
    print(f"--- {name}", flush=True)
    try:
        part()
    except Exception:
        traceback.print_exc()


def main() -> None:
    """Parse the command line and do the parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen3-30b-a3b")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", default="auto", choices=["auto", "cuda", "cpu"])
    parser.add_argument("--parts", type=_words, default=list(PARTS), help=f"default: {','.join(PARTS)}")
    parser.add_argument("--modes", type=_words, default=["pp", "ep"])
    parser.add_argument("--graphs", type=lambda text: [word == "on" for word in _words(text)], default=[True])
    parser.add_argument("--admission", type=_words, default=["greedy", "rebalance"])
    parser.add_argument("--depths", type=_numbers, default=[1.0], help="in multiples of the ranks; 0: depth 1")
    parser.add_argument("--concurrency", type=_counts, default=[1, 8, 16, 32, 64, 128])
    parser.add_argument(
        "--eager-concurrency", type=_counts, default=[], help="only these C without graphs; all if empty"
    )
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=128)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--profile-steps", type=int, default=4)
    parser.add_argument("--telemetry-engines", type=int, default=4)
    parser.add_argument("--limit-s", type=float, default=540.0, help="begin no further cell after this time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--traces", type=Path, help="folder for the cut traces")
    run = Run(parser.parse_args())
    inside = {"table": table, "knobs": knobs, "switch": switch, "traces": trace}
    wanted = [part for part in run.chosen.parts if part in inside]
    if wanted:
        with opened(run.config()) as session:
            print(
                f"{run.chosen.model} ready in {session.ready_s:.1f} s on {session.target.engine.hardware}", flush=True
            )
            for part in wanted:
                attempted(part, lambda part=part: inside[part](run, session))  # type: ignore[misc]
    for name, part in (("telemetry", telemetry), ("death", dies)):
        if name in run.chosen.parts:
            attempted(name, lambda part=part: part(run))  # type: ignore[misc]


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _counts(text: str) -> list[int]:
    return [int(word) for word in _words(text)]


def _numbers(text: str) -> list[float]:
    return [float(word) for word in _words(text)]


if __name__ == "__main__":
    main()
