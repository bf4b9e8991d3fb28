"""What an executor over workers can do, put together from the configuration and what the workers said."""

from __future__ import annotations

from collections.abc import Sequence

from engine.checkpoint.model_config import ModelConfig
from engine.checkpoint.parameters import parameters_of
from engine.config import ConfigError, EngineConfig
from engine.executor import Capabilities
from engine.parallel.layout import Layout, layout_of
from engine.presets import has_made_up_weights
from engine.worker_messages import Loaded
from engine.worker_processes import Worker
from sessions.knobs import KnobName
from sessions.messages import ModelInfo, RankInfo


def describe(
    config: EngineConfig,
    model: ModelConfig,
    layout: Layout,
    workers: Sequence[Worker],
    loaded: Sequence[Loaded],
    blocks: int,
    context: int,
) -> Capabilities:
    """Capabilities in this layout, with a cache of `blocks` and contexts of up to `context` tokens."""
    device = loaded[0].device
    unavailable: dict[KnobName, str] = {}
    if device == "cpu":
        unavailable["cuda_graphs"] = "no CUDA device"
    if config.pp == config.ep == 1:
        unavailable["parallelism"] = "the engine has one rank: start it with --pp or --ep above 1"
    else:
        reason = _why_no_switch(config, model, layout)
        if reason is not None:
            unavailable["parallelism"] = reason
    return Capabilities(
        model=ModelInfo(
            name=config.model,
            architecture=model.family,
            layers=model.layers,
            hidden=model.hidden,
            experts=model.experts,
            experts_per_token=model.experts_per_token,
            vocab=model.vocab,
            dtype=model.dtype if config.dtype == "auto" else config.dtype,
            load_format="dummy" if has_made_up_weights(config) else "auto",
            parameters=sum(parameter.elements() for parameter in parameters_of(model)),
        ),
        ranks=[_rank_info(layout, worker, loaded[worker.rank]) for worker in workers],
        stages=layout.stages,
        kv_blocks=blocks,
        block_size=config.block_size,
        max_context=context,
        eos=model.eos,
        device=device,
        unavailable=unavailable,
        max_run_ahead=config.run_ahead,
        hardware=f"{len(workers)}x {device}",
    )


def _why_no_switch(config: EngineConfig, model: ModelConfig, layout: Layout) -> str | None:
    """Why the model cannot be laid out in the other mode; None where it can."""
    try:
        layout_of(model, config, "ep" if layout.mode == "pp" else "pp")
    except ConfigError as error:
        return str(error)
    return None


def _rank_info(layout: Layout, worker: Worker, loaded: Loaded) -> RankInfo:
    layers = layout.layers_of(worker.rank)
    assert worker.joined is not None
    return RankInfo(
        rank=worker.rank,
        stage=layout.stage_of(worker.rank) or 0,
        first_layer=layers.start,
        last_layer=layers.stop,
        device=loaded.device,
        host=worker.joined.host,
        pid=worker.joined.pid,
        gpu_uuid=loaded.gpu_uuid,
    )
