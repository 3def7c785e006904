"""`headcount capacity --suggest`: what gains is tried with the same users, not guessed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from simulator.study.variations.ratios import users_ratio
from tests.headcount.conftest import SHORT_ANSWERS

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.01, "replications": 4, "store": False,
    "max_model_len": 4096, "max_num_seqs": 2,
}  # fmt: skip


def asked(**given: Any) -> hc.CapacityResult:
    return hc.capacity("qwen3-0.6b", "h100-sxm", **{"gpus": [1], **QUICK, **given})


@pytest.fixture(scope="module")
def answer() -> hc.CapacityResult:
    return asked(suggest=True)


def test_a_lift_is_the_ratio_of_two_separate_answers(answer: hc.CapacityResult) -> None:
    assert answer.suggestions
    first = answer.suggestions[0]
    assert (first.change, first.gains) == ("--max-num-seqs 4", True)
    alone = asked(max_num_seqs=4).best
    ratio = users_ratio(alone, asked().best)
    assert ratio is not None
    assert first.ratio is not None
    assert first.ratio.mean == pytest.approx(ratio.mean, rel=0.01)
    assert first.ratio.mean == pytest.approx(alone.users_low / answer.best.users_low)
    assert first.ratio.low < first.ratio.mean < first.ratio.high


def test_what_does_not_gain_is_told_as_such(answer: hc.CapacityResult) -> None:
    others = [lift for lift in answer.suggestions or () if not lift.gains]
    assert others
    assert f"tried without gain: {others[0].change}" in str(answer)


def test_other_sizes_are_tried_where_one_was_given_and_routers_by_the_search_itself() -> None:
    free = asked(gpus=[2], suggest=True)
    assert "router" not in [lift.argument for lift in free.suggestions or ()], "the better one was chosen"
    sized = asked(gpus=[2], tensor_parallel_size=2, suggest=True)
    assert "router" not in [lift.argument for lift in sized.suggestions or ()]


def test_given_kv_blocks_hold_for_the_given_formats_alone() -> None:
    found = asked(num_gpu_blocks_override=300, suggest=True)
    assert found.suggestions
    assert not {"kv_cache_dtype", "quantization"} & {lift.argument for lift in found.suggestions}


def test_lower_precision_is_named_as_a_change_of_the_answers(answer: hc.CapacityResult) -> None:
    lowered = [lift for lift in answer.suggestions or () if lift.to_json()["lowers_precision"]]
    assert lowered
    assert all("test their quality" in str(lift) for lift in lowered)


def test_where_nobody_is_served_nothing_is_tried() -> None:
    assert asked(step_s=2.0, suggest=True).suggestions == ()
    assert asked(step_s=2.0).suggestions is None


def test_the_command_answers_as_python_does(
    headcount: Callable[..., Any], answer: hc.CapacityResult, tmp_path: Path
) -> None:
    report = tmp_path / "lifts.html"
    ran = headcount(
        "capacity", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--gpus", "1", "--max-num-seqs", "2", "--suggest",
        "--workload", SHORT_ANSWERS, "--latency-model", "constant", "--step-s", "0.01", "--replications", "4",
        "--no-store", "--max-model-len", "4096", "--json", "--report", report,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["suggestions"] == answer.to_json()["suggestions"]
    assert "--max-num-seqs 4" in report.read_text(encoding="utf-8")
