"""A ladder of rates: each stage as it was served."""

from typing import Any

import pytest

import headcount as hc
from files.errors import HeadcountError
from tests.headcount.queries.test_tenants import Run

LADDER: dict[str, Any] = {
    "input_len": 400, "output_len": 50, "stages": (2.0, 4.0, 60.0), "stage_length": 20.0,
    "latency_model": "constant", "step_s": 0.02, "max_num_seqs": 16,
}  # fmt: skip


def test_stages_are_rows_whose_requests_add_up_and_the_last_queues() -> None:
    answer = hc.simulate("llama-3.1-8b", "h100-sxm", ttft_s=1.0, **LADDER)
    first, second, last = answer.served.stages
    assert sum(each.num_requests for each in (first, second, last)) == answer.result.num_requests
    assert first.served_per_s == pytest.approx(2.0, rel=0.4)
    assert last.served_per_s < 20 < last.rate_per_s  # 16 sequences of a second each
    assert (first.attainment, second.attainment) == (1.0, 1.0)
    assert last.attainment is not None and last.attainment < 0.5
    assert (first.ttft_p95_s or 0) < 0.1 < (last.ttft_p95_s or 0)


def test_prompts_with_a_shared_prefix_find_it_cached() -> None:
    shared = {**LADDER, "prefix_len": 4000, "num_prefixes": 3}
    answer = hc.simulate("llama-3.1-8b", "h100-sxm", **shared)
    assert answer.result.prefix_hit_rate == pytest.approx(4000 / 4400, abs=0.03)
    again = hc.simulate("llama-3.1-8b", "h100-sxm", prompts_per_prefix=2, **shared)
    assert again.result.prefix_hit_rate > 0.96


def test_the_text_has_a_row_for_each_stage(headcount: Run) -> None:
    ran = headcount(
        "simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--input-len", 400, "--output-len", 50,
        "--stages", "2,4,2", "--stage-length", "10s", "--latency-model", "constant", "--step-s", 0.02,
    )  # fmt: skip
    assert ran.code == 0
    assert "2, 4, 2 requests/s for 10 s each" in ran.out
    assert "req/s asked" in ran.out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"stages": (0.0,)}, "all stages have a rate of 0"),
        ({"stage_length": 0.0}, "it must last longer than 0"),
        ({"num_prefixes": 3}, "--num-prefixes needs --prefix-len"),
        ({"users": 5}, "cannot go with"),
    ],
)
def test_what_is_no_ladder_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        hc.simulate("llama-3.1-8b", "h100-sxm", **(LADDER | given))
