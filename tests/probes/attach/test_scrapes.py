from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from probes.attach.read_scrape import read_scrape
from probes.attach.sglang_scrape import slots_from
from probes.attach.snapshot import NotAServer


def test_a_real_scrape_of_sglang_shows_slots_of_15_and_1(shared_data: Path) -> None:
    snapshot = read_scrape((shared_data / "servers" / "sglang_metrics_pp2.txt").read_text())
    assert (snapshot.kind, snapshot.model, snapshot.stages) == ("sglang", "qwen3-30b-a3b", 2)
    assert snapshot.slots == [15, 1]
    assert (snapshot.running, snapshot.waiting) == (16, 0)
    assert snapshot.generated == 8338
    assert snapshot.graphs is True
    assert snapshot.throughput is None, "per-stage figures are of slots: neither one nor their sum is the throughput"
    assert (snapshot.kv_used, snapshot.kv_room) == (2928, 1782482)


@pytest.mark.parametrize("name", ["vllm_metrics.txt", "vllm_metrics_pp2.txt"])
def test_a_real_scrape_of_vllm_says_what_it_does_not_show(shared_data: Path, name: str) -> None:
    snapshot = read_scrape((shared_data / "servers" / name).read_text())
    assert (snapshot.kind, snapshot.model) == ("vllm", "tiny-moe")
    assert snapshot.running == 16
    assert snapshot.slots is None
    assert [entry.what for entry in snapshot.not_exposed] == ["slot sizes", "stage occupancy"]
    assert snapshot.graphs is None
    assert snapshot.kv_room is not None
    assert snapshot.kv_used is not None
    assert 0 < snapshot.kv_used < snapshot.kv_room


def test_our_own_server_shows_its_slots() -> None:
    snapshot = read_scrape(
        "\n".join(
            [
                "# TYPE vllm:num_requests_running gauge",
                'vllm:num_requests_running{model_name="tiny"} 16',
                "# TYPE herdscope_slot_decode_requests gauge",
                'herdscope_slot_decode_requests{model_name="tiny",slot="1"} 1',
                'herdscope_slot_decode_requests{model_name="tiny",slot="0"} 15',
                "# TYPE herdscope_stage_occupancy_ratio gauge",
                'herdscope_stage_occupancy_ratio{stage="0"} 0.5',
                'herdscope_stage_occupancy_ratio{stage="1"} 0.5',
                "",
            ]
        )
    )
    assert (snapshot.kind, snapshot.stages, snapshot.slots, snapshot.not_exposed) == ("herdscope", 2, [15, 1], [])


@pytest.mark.parametrize(
    ("seen", "active", "slots"),
    [
        ([15, 1], 16, [15, 1]),
        ([16, 16], 16, [16, 0]),
        ([8, 8], 16, [8, 8]),
        ([8, 8], 32, None),  # both stages logged the same slot, or two of more: it cannot be told
        ([3, 3], None, None),
        ([0, 0], 0, None),
    ],
)
def test_slots_are_given_only_when_they_account_for_every_request(
    seen: list[int], active: int | None, slots: list[int] | None
) -> None:
    assert slots_from(seen, active, len(seen)) == slots


@given(st.lists(st.integers(0, 50), min_size=2, max_size=8), st.integers(0, 400))
def test_slots_given_always_sum_to_the_active_requests(seen: list[int], active: int) -> None:
    slots = slots_from(seen, active, len(seen))
    assert slots is None or sum(slots) == active


@pytest.mark.parametrize("text", ["", "hello world", "<html></html>", "node_load1 0.5\n", "\x00\xff", "a{b=} 1\n"])
def test_text_of_another_kind_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(NotAServer) as caught:
        read_scrape(text)
    assert "\n" not in str(caught.value)
