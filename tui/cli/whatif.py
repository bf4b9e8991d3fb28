"""`herdscope whatif`: sweep knobs, GPUs and load on the emulated cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sessions.knobs import ADMISSIONS, PARALLELISMS, Admission, Parallelism
from tui.cli.output import json_option, note, print_json
from tui.cli.param_types import WHOLE_NUMBERS, Choices
from tui.cli.workload_options import workload_options

if TYPE_CHECKING:
    from engine.emulated.calibrate import Calibration
    from engine.emulated.hardware import Hardware
    from engine.emulated.model_profile import ModelProfile
    from sessions.load.workload import Workload


@click.command()
@click.option("--emulate", default="8x-rtx-pro-6000", show_default=True, metavar="PROFILE", help="Hardware profile.")
@click.option("--model", default="kimi-k2.6", show_default=True, metavar="PATH|PRESET", help="Model profile.")
@click.option("--gpus", type=WHOLE_NUMBERS, help="GPUs in all, shared out over equal engines  [default: the profile's]")
@click.option("--ranks", type=WHOLE_NUMBERS, help="GPUs of one engine (pp or ep)  [default: the profile's, at most 8]")
@click.option("--parallelism", type=Choices(PARALLELISMS), default="pp", show_default=True, help="How engines shard.")
@click.option("--async-depth", type=WHOLE_NUMBERS, help="Micro-batches in flight  [default: one a stage]")
@click.option("--admission", type=Choices(ADMISSIONS), default="greedy", show_default=True, help="Admission policies.")
@click.option("--max-micro-batch", type=WHOLE_NUMBERS, default="256", show_default=True, help="Most requests a slot.")
@click.option("--cuda-graphs", type=Choices(("on", "off")), default="on", show_default=True, help="CUDA graphs.")
@click.option(
    "--concurrency", type=WHOLE_NUMBERS, default="1,8,32", show_default=True, help="Requests at once, in all."
)
@click.option("--layer-split", type=click.Choice(["even", "balanced"]), default="even", help="Even, or by cost.")
@click.option("--skew", type=click.FloatRange(0, 10), help="Zipf exponent of the experts' popularity (0: uniform).")
@click.option(
    "--calibrate",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Fit the profile to a bench result, a recording, or lines `C tok/s [on|off]` (graphs) of PROFILE first.",
)
@click.option("--fit", metavar="NAME,...", help="Figures that --calibrate fits  [default: what the runs tell apart]")
@click.option("--validate", is_flag=True, help="Print the predictions beside published and measured rates, and end.")
@json_option
@workload_options
def whatif(
    emulate: str,
    model: str,
    gpus: tuple[int, ...] | None,
    ranks: tuple[int, ...] | None,
    parallelism: tuple[Parallelism, ...],
    async_depth: tuple[int, ...] | None,
    admission: tuple[Admission, ...],
    max_micro_batch: tuple[int, ...],
    cuda_graphs: tuple[str, ...],
    concurrency: tuple[int, ...],
    layer_split: Literal["even", "balanced"],
    skew: float | None,
    calibrate: Path | None,
    fit: str | None,
    validate: bool,
    as_json: bool,
    workload: Workload,
) -> None:
    """Run every combination of the values given on the emulated cluster, in virtual time.

    \b
    Example: herdscope whatif --admission greedy,capped --cuda-graphs on,off --concurrency 1,8,32
             herdscope whatif --gpus 8,64,512,4096 --concurrency 1024 --parallelism pp,ep
             herdscope whatif --validate
    """
    import msgspec

    from engine.emulated.calibrate import UNFITTED_BAND
    from engine.emulated.hardware import load_hardware
    from engine.emulated.model_profile import load_model
    from engine.emulated.report import calibration_text, chart_text, rows_text
    from engine.emulated.whatif import Grid, Sweep
    from tui.cli.progress import progress_bar

    if validate:
        _validate(as_json)
        return
    if workload.source == "mooncake":
        raise click.UsageError("whatif runs closed loops: use random or text prompts")
    hardware, profile = load_hardware(emulate), load_model(model)
    if skew is not None:
        profile = msgspec.structs.replace(profile, routing_skew=skew)
    ranks = ranks or (min(hardware.count, 8, profile.layers),)
    fitted = _fit(calibrate, hardware, profile, ranks[0], fit) if calibrate else None
    grid = Grid(
        gpus=gpus or (hardware.count,),
        ranks=ranks,
        parallelism=parallelism,
        async_depth=async_depth or (0,),
        admission=admission,
        max_micro_batch=max_micro_batch,
        cuda_graphs=tuple(word == "on" for word in cuda_graphs),
        concurrency=concurrency,
    )
    sweep = Sweep(
        hardware=fitted.hardware if fitted else hardware,
        model=profile,
        workload=workload,
        band=fitted.band if fitted else UNFITTED_BAND,
        split=layer_split,
    )
    settings = list(grid.settings())
    with progress_bar("what-if, emulated") as show:
        rows = sweep.run(settings, lambda done: show(done / len(settings), f"{done} of {len(settings)}"))
    if as_json:
        print_json(
            {"emulated": True, "hardware": sweep.hardware, "calibration": fitted, "band": sweep.band, "rows": rows}
        )
        return
    trust = calibration_text(fitted) if fitted else f"profile as it stands, band +-{100 * UNFITTED_BAND:.0f} %"
    note(f"{hardware.title}, {profile.name}: {trust}")
    click.echo(rows_text(rows))
    click.echo()
    click.echo(chart_text(rows))


def _fit(path: Path, hardware: Hardware, profile: ModelProfile, ranks: int, names: str | None) -> Calibration:
    from engine.emulated.calibrate import calibrate
    from engine.emulated.hardware import with_count
    from engine.emulated.observations import read_observations

    observations = read_observations(path, ranks)
    count = max(hardware.count, *(o.ranks for o in observations))
    parameters = names.split(",") if names is not None else None
    return calibrate(with_count(hardware, count), profile, observations, parameters)


def _validate(as_json: bool) -> None:
    from engine.emulated.calibrate import unfitted
    from engine.emulated.report import validation_text
    from engine.emulated.validation import tables

    found = tables()
    if not as_json:
        click.echo(validation_text(found))
        return
    print_json(
        [
            {
                "title": table.title,
                "fitted_to": table.fitted_to,
                "error": unfitted(table.hardware, table.model, table.rows),
                "rows": [
                    {"name": str(r), "measured": r.value, "emulated": r.predicted(table.hardware, table.model)}
                    for r in table.rows
                ],
            }
            for table in found
        ]
    )
