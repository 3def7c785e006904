"""`headcount capacity`: what is found stays, whatever else is asked for."""

from typing import Any

import pytest

import headcount as hc
from files.errors import HeadcountError
from headcount.text.units import percent
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from tests.headcount.conftest import SHORT_ANSWERS

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.01, "replications": 2, "store": False,
    "precision": 0.9, "max_model_len": 4096, "max_num_seqs": 4,
}  # fmt: skip


def test_a_number_of_gpus_that_is_refused_leaves_the_other_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    found = CapacityTable.row

    def row(table: CapacityTable, gpus: int) -> CapacityRow:
        if gpus != 1:
            raise HeadcountError("too many")
        return found(table, gpus)

    monkeypatch.setattr(CapacityTable, "row", row)
    answer = hc.capacity("qwen3-0.6b", "h100-sxm", gpus=(64, 1), **QUICK)
    refused, served = answer.capacity
    assert served.users and served.reason is None and answer.best is served
    assert (refused.users, refused.reason) == (0, "too many")
    assert "64 GPUs: too many" in str(answer)
    with pytest.raises(HeadcountError, match="too many"):
        hc.capacity("qwen3-0.6b", "h100-sxm", gpus=(64,), **QUICK)


def test_a_longer_system_prompt_says_how_much_of_the_prompts_is_cached() -> None:
    answer = hc.capacity("qwen3-0.6b", "h100-sxm", gpus=(1,), **QUICK, traffic={"system-prompt": "1K"})
    point = answer.best.safe_point or answer.best.point
    assert point is not None
    hits = point.mean("prefix_hit_rate")
    assert hits > 0.5  # of prompts that begin with the same 1,024 tokens
    said = f"{percent(round(hits, 2))} of the prompt tokens are found in the prefix cache"
    assert said in str(answer)
    off = hc.capacity(
        "qwen3-0.6b", "h100-sxm", gpus=(1,), **QUICK, traffic="system-prompt=1K", enable_prefix_caching=False
    )
    assert "0 % of the prompt tokens are found in the prefix cache" in str(off)
    assert "found in the prefix cache" not in str(hc.capacity("qwen3-0.6b", "h100-sxm", gpus=(1,), **QUICK))


def test_nobody_served_under_sglang_is_an_answer() -> None:
    """The contexts that might serve somebody are looked for under SGLang's own name, whatever was left open."""
    given = QUICK | {"step_s": 0.2, "max_model_len": None, "max_num_seqs": None}
    answer = hc.capacity("qwen3-0.6b", "h100-sxm", engine="sglang", **given)
    assert not any(row.users_low for row in answer.capacity)
    assert answer.shorter_context == ()
