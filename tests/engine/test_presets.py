"""Presets, whole and cut down."""

from __future__ import annotations

import pytest

from engine.checkpoint.model_config import CheckpointError
from engine.checkpoint.parameters import parameters_of
from engine.presets import PRESETS, model_config


def test_a_preset_by_its_name() -> None:
    assert model_config("kimi-k2") is PRESETS["kimi-k2"]


def test_a_cut_has_the_first_layers_and_all_else() -> None:
    cut, whole = model_config("kimi-k2@4"), PRESETS["kimi-k2"]
    assert cut == PRESETS["kimi-k2-mini"]
    assert {p.name: p.shape for p in parameters_of(cut)}.items() <= {
        p.name: p.shape for p in parameters_of(whole)
    }.items()


@pytest.mark.parametrize("model", ["kimi-k2@", "kimi-k2@0", "kimi-k2@62", "kimi-k2@x", "kimi-k2@-1"])
def test_a_cut_that_it_does_not_have(model: str) -> None:
    with pytest.raises(CheckpointError, match="kimi-k2 has 1 to 61 layers"):
        model_config(model)


def test_neither_a_preset_nor_a_folder() -> None:
    with pytest.raises(CheckpointError, match=r"neither a folder nor a preset .*NAME@LAYERS"):
        model_config("kimi")
