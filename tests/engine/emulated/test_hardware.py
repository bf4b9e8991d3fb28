from __future__ import annotations

from pathlib import Path

import pytest

from engine.config import ConfigError
from engine.emulated.hardware import H200, MAX_GPUS, PROFILES, RTX_PRO_6000, load_hardware, recognise


def test_names_carry_a_count() -> None:
    assert load_hardware("h200").count == 1
    eight = load_hardware("8x-rtx-pro-6000")
    assert (eight.count, eight.label) == (8, "8x RTX PRO 6000 Blackwell")
    assert load_hardware(f"{MAX_GPUS}x-b200").count == MAX_GPUS


@pytest.mark.parametrize(
    "name", ["", "h2000", "0x-h200", "4097x-h200", "x-h200", "-1x-h200", "8x-", "8x-H200", "none.toml"]
)
def test_a_wrong_name_is_one_clear_line(name: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_hardware(name)
    assert "\n" not in str(error.value) and str(error.value).startswith("emulate: ")


def test_toml_builds_on_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "h200"\ncount = 4\nmemory_efficiency = 0.5\nhop_us = 12\n')
    mine = load_hardware(str(file))
    assert (mine.count, mine.memory_efficiency, mine.hop_us) == (4, 0.5, 12.0)
    assert mine.memory_bytes_per_s == H200.memory_bytes_per_s


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ('base = "h999"', "h999"),
        ("count = 2", "memory_bytes"),
        ('base = "h200"\nmemory_efficiency = 1.5', "memory_efficiency"),
        ('base = "h200"\nhop_us = -1', "hop_us"),
        ('base = "h200"\nhop_us = nan', "hop_us"),
        ('base = "h200"\nspeed = 3', "speed"),
        ('base = "h200"\nidle_watts = 900', "watts"),
        ('base = "h200"\ncount = 0', "count"),
        ("base = ", "TOML"),
    ],
)
def test_a_wrong_file_names_the_field(tmp_path: Path, text: str, word: str) -> None:
    file = tmp_path / "bad.toml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=word):
        load_hardware(str(file))


def test_links_cost_latency_and_bytes_and_more_between_hosts() -> None:
    sixteen = load_hardware("16x-h200")
    near, far = sixteen.hop_s(0, 1, 1e6), sixteen.hop_s(7, 8, 1e6)
    assert near == pytest.approx(sixteen.hop_us * 1e-6 + 1e6 / sixteen.link_bytes_per_s)
    assert far > near
    assert sixteen.allreduce_s(1, 1e6) == 0.0
    assert sixteen.allreduce_s(16, 1e6) > sixteen.allreduce_s(8, 1e6) > sixteen.allreduce_s(2, 1e6)


def test_gpus_are_recognised_by_their_drivers_names() -> None:
    assert recognise("NVIDIA H200") is PROFILES["h200"]
    assert recognise("NVIDIA RTX PRO 6000 Blackwell Server Edition") is RTX_PRO_6000
    assert recognise("EMULATED 8x RTX PRO 6000 Blackwell") is RTX_PRO_6000
    assert recognise("NVIDIA GB200") is None
    assert recognise("AMD Instinct MI300X") is None
