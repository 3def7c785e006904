"""`headcount whatif`: grids over traffic, users and settings, each cell beside the first."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import headcount as hc
from headcount.inputs.reading.traffic import read_amount
from headcount.inputs.reading.variations import read_varied, varied
from headcount.queries.sweeps.needs import Need
from headcount.views.of.whatif import _failure_text
from tests.headcount.conftest import SHORT_ANSWERS
from tests.headcount.told import head_of, summary_of
from workloads.traffic_changes import Amount

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.01, "replications": 4, "store": False,
    "precision": 0.9, "max_model_len": 4096, "max_num_seqs": 2,
}  # fmt: skip
VARY = {"output": ["x1", "x4"], "users": [10, 15, 150]}


@pytest.fixture(scope="module")
def answer() -> hc.WhatifResult:
    return hc.whatif("qwen3-0.6b", "h100-sxm", vary=VARY, **QUICK)


@pytest.mark.slow
def test_longer_answers_serve_fewer_users(answer: hc.WhatifResult) -> None:
    few, many = answer.cells[1], answer.cells[0]
    assert 0 < few.users < many.users
    assert answer.rows()[0]["users_over_base"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert answer.rows()[1]["users_over_base"]["high"] < 1


def test_the_head_has_the_other_case_and_the_table_what_is_not_confirmed() -> None:
    given = {name: value for name, value in QUICK.items() if name not in ("precision", "replications")}
    found = hc.whatif("qwen3-0.6b", "h100-sxm", vary={"output": ["x1", "x4"]}, **given)
    base, other = found.cells
    assert 0 < other.users < base.users
    said = str(found)
    head = said[: said.index("≈")]
    assert re.search(rf"{base.users} users? on 1 × .* with .*, {other.users} with ", head)
    assert "≈: from few replications; users may be off by 5 %" in said


@pytest.mark.slow
def test_a_case_that_comes_to_the_settings_of_the_base_has_its_figures() -> None:
    given = {name: value for name, value in QUICK.items() if name not in ("precision", "replications")}
    found = hc.whatif("qwen3-0.6b", "h100-sxm", vary={"kv_cache_dtype": ["auto", "bfloat16", "fp8"]}, **given)
    base, same, other = found.cells
    assert same.row is base.row and not same.is_coarse
    assert other.is_coarse
    assert found.rows()[1]["users_over_base"] == {"mean": 1.0, "low": 1.0, "high": 1.0}


def test_more_users_never_need_fewer_gpus_and_each_gets_a_place(answer: hc.WhatifResult) -> None:
    for cell, needs in zip(answer.cells, answer.needs, strict=True):
        gpus = [need.gpus or 0 for need in needs]
        assert all(fewer <= more for fewer, more in pairwise(gpus))
        assert all(need.users_low is not None and need.users_low >= need.users for need in needs)
        assert cell.users > 0
    assert [need.users for need in answer.needs[0]] == [10, 15, 150]


def test_the_first_page_says_what_to_buy_in_every_case_and_whom_it_serves(answer: hc.WhatifResult) -> None:
    count = answer.cells[0].users + 1
    asked = replace(answer, users=(count,), bought=())  # in proportion, as before fleets are simulated
    page = summary_of(asked)
    assert dict(page.figures)["for"].startswith(f"{count:,} users at once, workload ")
    assert page.options is not None
    for cell, (need,), row in zip(answer.cells, asked.needs, page.options.rows, strict=True):
        assert cell.row is not None and need.gpus is not None and need.usd_per_month is not None
        assert row[1:4] == (
            f"{need.gpus} GPUs ({need.layout})",
            f"{need.usd_per_month:,.0f}",
            f"{need.usd_per_month / count:,.2f}",
        )
        servers = need.gpus // cell.gpus
        ends = (cell.row.users_low, cell.row.users, cell.row.users_high)
        assert row[4:] == tuple(f"{servers * users:,}" for users in ends)
        assert servers * cell.row.users_low >= count
    room = page.headroom
    assert room is not None and room.needed == count and f"{room.low:,}" == page.options.rows[0][4]
    assert (
        f"on {asked.needs[0][0].gpus} GPUs: 95 % of fleets like this one can serve at least {room.low:,} users"
        in page.sure
    )
    assert page.risk.startswith("No case includes a spare server; one more costs $2,913 a month in every case. The")
    assert "95 % of such fleets can serve at least that many" in page.options.note


def test_of_several_numbers_of_users_it_says_for_which_the_first_case_is_enough(answer: hc.WhatifResult) -> None:
    users = answer.cells[0].users
    asked = replace(answer, users=(users, users + 1), bought=())
    assert f"enough for {users}, too few for {users + 1}" in str(head_of(asked)[1])
    options = summary_of(asked).options
    assert options is not None
    for needs, row in zip(asked.needs, options.rows, strict=True):
        assert all(cell.endswith(" each") for cell in row[4:]) and len(row) == 4 + len(needs)


@pytest.mark.slow
@pytest.mark.parametrize(("router", "users"), [(None, 200), ("least-outstanding", 130)])
def test_a_fleet_that_is_bought_serves_the_users_as_capacity_simulates_it(router: str | None, users: int) -> None:
    """Behind least-outstanding, four servers serve about twice what one does: 200 are safe to promise on none."""
    given: dict[str, Any] = {"tensor_parallel_size": 1, "replications": 6, "store": False}
    found = hc.whatif("llama-3.1-8b", "h100-sxm", gpus=1, users=users, vary={"context": ["x2"]}, router=router, **given)
    (need,) = found.needs[0]
    assert need.gpus is not None and need.users_low is not None and need.users_mean is not None
    assert need.users_low >= users
    assert need.router == ("session-affinity" if router is None else router)
    asked = hc.capacity(
        "llama-3.1-8b", "h100-sxm", gpus=[need.gpus], router=need.router, traffic={"context": "x2"}, **given
    )
    assert asked.rows()[0]["users"] == pytest.approx(need.users_mean, rel=0.15)
    alone = found.cells[0].users
    if router is not None:
        assert need.gpus > math.ceil(users / alone), "in proportion to one server they would be too few"
    assert ("with the router session-affinity" in str(found)) == (router is None)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ((500,), "one more costs $2,913 to $23,302 a month, by case."),
        ((), "one more costs $2,913 a month in every case."),
    ],
)
def test_a_spare_server_costs_what_is_bought_not_what_was_tried_first(asked: tuple[int, ...], told: str) -> None:
    small = SimpleNamespace(usd_per_month=5_826.0, num_servers=2)
    large = SimpleNamespace(usd_per_month=23_302.0, num_servers=1)
    answer: Any = SimpleNamespace(users=asked, cells=(small, small), fleets=(small, large))
    assert _failure_text(answer) == f"No case includes a spare server; {told} The following is for the first case."


def test_a_context_is_named_average_in_the_question_the_answer_and_every_row() -> None:
    page = summary_of(hc.whatif("qwen3-0.6b", "h100-sxm", vary={"context": ["x1", "x2"]}, **QUICK))
    assert page.options is not None
    assert page.question.startswith("Average context x1 or x2: what does it change")
    assert "with average context x1 (" in page.answer
    assert all(row[0].startswith("average context x") and row[0].endswith(" tokens)") for row in page.options.rows)
    few, many = (int(re.sub(r"\D", "", row[0].partition("(")[2])) for row in page.options.rows)
    assert many == pytest.approx(2 * few, rel=0.02)


def test_a_context_beyond_the_longest_is_refused_before_anything_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.queries.sweeps.layouts.simulated", lambda *_: pytest.fail("simulated"))
    with pytest.raises(ValueError, match=r"context is 8,192 tokens on average, beyond the longest .* 4,096"):
        hc.whatif("qwen3-0.6b", "h100-sxm", gpus=1, vary={"context": "8K"}, **QUICK)


def test_a_grid_of_a_million_cells_is_refused_with_its_size() -> None:
    vary = {"max_num_seqs": list(range(1, 1001)), "max_num_batched_tokens": list(range(2000, 3000))}
    with pytest.raises(ValueError, match=r"1,000,000 cells \(1,000 of max_num_seqs × 1,000 of .*\) are too many"):
        hc.whatif("qwen3-0.6b", "h100-sxm", vary=vary)


@pytest.mark.slow
def test_a_tornado_is_sorted_by_its_effect() -> None:
    found = hc.whatif("qwen3-0.6b", "h100-sxm", tornado=True, tpot_s=0.015, **QUICK)
    widths = [swing.width for swing in found.swings]
    assert widths == sorted(widths, reverse=True)
    names = {swing.name for swing in found.swings}
    assert {"output", "think-time", "step times", "TTFT limit"} <= names
    thinking = next(swing for swing in found.swings if swing.name == "think-time")
    less, more = thinking.effects
    assert less is not None
    assert more is not None
    assert less.mean < 1 < more.mean
    assert "20% less" in str(found)


def test_what_is_varied_is_read_by_its_kind() -> None:
    axes = varied({"context": "x1,2K", "-ttft": "500ms,2s", "tensor-parallel-size": "1,2", "step_times": ["x1", 1.2]})
    assert [axis.name for axis in axes] == ["context", "ttft", "tensor_parallel_size", "step_times"]
    assert axes[0].values == (Amount(value=1.0, is_factor=True), Amount(value=2048))
    assert [axis.values for axis in axes[1:]] == [(0.5, 2.0), (1, 2), (1.0, 1.2)]
    assert varied({"enable_prefix_caching": "on,off"})[0].values == (True, False)
    assert varied({"users": "500,2K"})[0].values == (500, 2000)  # of people, K is a thousand


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "nothing to vary"),
        ({"vary": {"contxt": "x2"}}, "no variation 'contxt'; did you mean 'context'"),
        ({"vary": {"context": "x0"}}, "context x0"),
        ({"vary": {"users": "0"}}, "users: '0' is not a whole number above 0"),
        (
            {"vary": {"zzz": "1"}},
            "no variation 'zzz'; known: context, .*, users, .*, any engine option",
        ),
        ({"vary": {"users": list(range(1, 600))}}, r"599 cells \(599 of users\) are too many; give at most 400"),
        (
            {"vary": {"users": [1, 2], "max_num_seqs": list(range(1, 600))}},
            r"1,198 cells \(2 of users × 599 of max_num_seqs\) are too many",
        ),
        ({"vary": {"enable_prefix_caching": "maybe"}}, "enable-prefix-caching: no value 'maybe'; known: off, on"),
        ({"vary": {"step_times": "0"}}, "step-times: x0 is out of range; give x0.01 to x100"),
    ],
    ids=str,
)
def test_what_cannot_be_varied_is_told_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hc.whatif("qwen3-0.6b", "h100-sxm", **QUICK, **given)


def test_text_that_varies_nothing_is_told_with_an_example() -> None:
    with pytest.raises(ValueError, match="give NAME=VALUE,VALUE, such as context=x1,x2,x4"):
        read_varied(["context"])


def test_what_is_varied_twice_is_told() -> None:
    assert read_varied(["context=x1", "users=5,6"]) == {"context": "x1", "users": "5,6"}
    with pytest.raises(ValueError, match=r"context is given twice; give all its values at once: context=x1,x2,x4"):
        read_varied(["context=x1,x2", "context=x4"])


@pytest.mark.slow
def test_the_command_writes_a_heatmap(headcount: Callable[..., Any], answer: hc.WhatifResult, tmp_path: Path) -> None:
    report = tmp_path / "whatif.html"
    ran = headcount(
        "whatif", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--vary", "output=x1,x4", "--vary", "users=10,15,150",
        "--workload", SHORT_ANSWERS, "--latency-model", "constant", "--step-s", "0.01", "--replications", "4",
        "--precision", "0.9", "--no-store", "--max-model-len", "4096", "--max-num-seqs", "2", "--json",
        "--report", report,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [cell["needs"] for cell in found["cells"]] == [cell["needs"] for cell in answer.rows()]
    page = report.read_text(encoding="utf-8")
    assert "Columns: what if, 10 users, 15 users, 150 users" in page


def test_each_cell_is_told_as_it_is_found() -> None:
    cells: list[tuple[int, int]] = []

    def watch(told: hc.Progress) -> None:
        if isinstance(told.so_far, hc.WhatifResult):
            cells.append((told.done, len(told.so_far.rows())))

    hc.whatif("qwen3-0.6b", "h100-sxm", **QUICK, vary={"output": "x1,x4"}, progress=watch)
    assert cells == [(0, 2), (1, 1), (2, 2)], "all cells by estimate, then each as it is simulated"


CHAT: dict[str, Any] = {"replications": 4, "store": False, "precision": 0.9}


@pytest.mark.slow
@pytest.mark.parametrize(("context", "ttft_s"), [("24K", 1.0), ("40K", 3.0)])
def test_a_context_that_one_gpu_is_too_slow_for_is_answered_with_larger_servers(context: str, ttft_s: float) -> None:
    vary = {"context": ["8K", context], "users": [100]}
    found = hc.whatif("llama-3.1-8b", "h100-sxm", vary=vary, ttft_s=ttft_s, **CHAT)
    (short,), (long,) = found.needs
    assert found.cells[1].users == 0
    assert short.gpus is not None
    assert long.gpus is not None
    assert short.gpus < long.gpus
    assert "TP1" not in str(long.layout)
    assert f"{long.gpus} GPUs ({long.layout})" in str(found)
    assert found.rows()[1]["binding"].startswith("TTFT")


@pytest.mark.slow
def test_a_server_that_capacity_says_serves_a_few_is_bought_as_often_as_they_need() -> None:
    """TTFT's error leaves a user or so of each: an estimate alone must not refuse the whole size."""
    given: dict[str, Any] = {"ttft_s": 1.6, "tensor_parallel_size": 8, **CHAT}
    (row,) = hc.capacity("llama-3.1-8b", "h100-sxm", gpus=[8], traffic={"context": "32K"}, **given).rows()
    assert 0 < row["users_low"] < 10 < row["users"]
    (need,) = hc.whatif("llama-3.1-8b", "h100-sxm", vary={"context": ["32K"], "users": [20]}, **given).needs[0]
    assert need.gpus is not None and need.users_low is not None
    assert need.users_low >= 20


def test_gpus_side_by_side_are_told_by_their_titles_and_once() -> None:
    page = summary_of(hc.whatif("qwen3-0.6b", "h100-sxm", vary={"gpu": ["h100-sxm", "l40s"]}, users=50, **QUICK))
    assert page.question.startswith("NVIDIA H100 SXM or NVIDIA L40S: what do 50 users")
    assert re.fullmatch(r"50 users need \d+ × NVIDIA H100 SXM \(.* a month\) or \d+ × NVIDIA L40S \(.*\)", page.answer)


def test_where_no_number_of_gpus_serves_the_users_it_says_why_and_what_comes_closest() -> None:
    """Steps of 10 ms with a TPOT limit of 5 ms in one case: no server of any size is fast enough."""
    found = hc.whatif("qwen3-0.6b", "h100-sxm", vary={"tpot": ["50ms", "5ms"], "users": [10]}, **QUICK)
    (served,), (unserved,) = found.needs
    assert served.gpus and served.reason is None
    assert unserved.gpus is None and unserved.reason
    text = " ".join(str(found).split())
    assert "none: see below" in text
    assert f"TPOT ≤ 5 ms, for 10 users: {unserved.reason}" in text
    assert "comes closest" in unserved.reason or "not even on servers of" in unserved.reason
    assert unserved.under_longer_limits and unserved.under_longer_limits.endswith(" with TPOT ≤ 15 ms")
    assert "under --tpot 15ms" in unserved.reason and "(but 1" in text and served.under_longer_limits is None


def test_a_few_cases_are_all_in_the_headline(answer: hc.WhatifResult) -> None:
    """Of four cases, the two between the least and the most as well; a cut context says at how many tokens it is."""
    gpus = (2, 16, 40, None)
    contexts = ("8K", "16K", "32K", "128K")
    base = answer.cells[0]
    assert base.traffic is not None and base.looked is not None
    cells, bought = [], []
    for number, (count, text) in enumerate(zip(gpus, contexts, strict=True)):
        cut = replace(base.traffic, output_tokens=0.0, prompt_tokens=10.0 if number == 2 else 1e9)
        cells.append(replace(base, choice={"context": read_amount("context", text)}, traffic=cut))
        bought.append((cells[-1], (Need(users=500, gpus=count, users_low=500, users_mean=500, users_high=500),)))
    made = replace(answer, cells=tuple(cells), users=(500,), bought=tuple(bought))
    said = head_of(made)[1]
    assert "2 × NVIDIA H100 SXM with average context 8,192 tokens; 16 GPUs with 16,384 tokens; " in str(said)
    assert "40 GPUs with 32,768 tokens, cut to 10; no number of GPUs is enough with 131,072 tokens" in str(said)
    table = [line for line in str(made).splitlines() if line.startswith("average context 32,768")]
    assert table[0].startswith("average context 32,768, simulated at 10 ")


@pytest.mark.slow
def test_what_to_buy_is_said_also_where_the_first_case_needs_larger_servers_than_were_given() -> None:
    found = hc.whatif("llama-3.1-8b", "h100-sxm", vary={"context": ["40K", "8K"]}, users=100, ttft_s=3.0, **CHAT)
    assert found.cells[0].users == 0
    assert found.needs[0][0].gpus is not None
    page = summary_of(found)
    assert page.answer.startswith(f"100 users need {found.needs[0][0].gpus} × NVIDIA H100 SXM (")
    assert page.headroom is not None and page.headroom.needed == 100 <= page.headroom.low


@pytest.mark.slow
def test_larger_servers_are_not_tried_where_their_size_is_given() -> None:
    found = hc.whatif("llama-3.1-8b", "h100-sxm", gpus=1, vary={"context": ["8K", "40K"], "users": [100]}, **CHAT)
    assert not any(found.others)
    assert found.needs[1][0].gpus is None


@pytest.mark.slow
def test_the_prefix_cache_is_seen_by_its_hits_and_by_ttft_under_one_load() -> None:
    found = hc.whatif("llama-3.1-8b", "h100-sxm", vary={"enable_prefix_caching": "on,off"}, **CHAT)
    on, off = found.rows()
    assert on["at_users"]["prefix_hit_rate"] > off["at_users"]["prefix_hit_rate"] == 0
    assert on["ttft_s_under_shared_load"]["p95"] < off["ttft_s_under_shared_load"]["p95"]
    assert found.shared_load == f"{min(on['users'], off['users'])} users"
    options = summary_of(found).options
    assert options is not None
    assert f"TTFT p95 ({found.shared_load})" in options.columns
