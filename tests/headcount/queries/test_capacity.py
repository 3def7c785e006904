"""`headcount capacity`: what is found stays, whatever else is asked for."""

from typing import Any

import pytest

import headcount as hc
from files.errors import HeadcountError
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
