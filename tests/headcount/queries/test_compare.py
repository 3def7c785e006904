"""`headcount compare`: what is listed is tried, ranked and explained; what loses stays."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import headcount as hc
from headcount.inputs.prices import catalog_names
from headcount.inputs.reading.variations import Axis, axes_of, choices, value_text, varied
from headcount.inputs.traffic import TrafficInput
from headcount.queries.compare import MOST_LAYOUTS, NO_MEMORY_PRICE, verdict_of
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts
from headcount.queries.sweeps.ranking import SORTS, ranked, ties, to_confirm
from headcount.text.words import PRECISION_REMARK
from headcount.views.of.compare import ORDERS, UNSURE_MEANING
from headcount.views.of.layouts_summary import spoken
from kvcache.gpus.gpu import find_gpu
from simulator.engines.values import Objects
from simulator.engines.vllm.speculation import SpeculativeConfig
from simulator.study.slo import find_slo
from simulator.study.slo_crossing import SLOCrossing
from tests.headcount.conftest import SHORT_ANSWERS
from tests.headcount.told import head_of, summary_of

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.01, "replications": 2, "store": False,
    "precision": 0.9, "max_model_len": 4096,
}  # fmt: skip
LISTS: dict[str, Any] = {"gpus": 2, "tensor_parallel_size": [1, 2, 3], "max_num_seqs": [2, 4]}


@pytest.fixture(scope="module")
def answer() -> hc.CompareResult:
    return hc.compare("qwen3-0.6b", "h100-sxm", **LISTS, **QUICK, simulate_all=True)


@pytest.mark.slow
def test_every_combination_is_in_the_answer_once(answer: hc.CompareResult) -> None:
    found = {(each.choice["tensor_parallel_size"], each.choice["max_num_seqs"]) for each in answer.layouts}
    assert found == {(tp, seqs) for tp in (1, 2, 3) for seqs in (2, 4)}
    assert len(answer.layouts) == 6


def test_the_first_page_says_up_to_how_many_users_a_smaller_bill_is_enough(answer: hc.CompareResult) -> None:
    best = answer.layouts[0]
    assert best.row is not None and best.usd_per_month
    smaller = replace(best, gpus=1, row=replace(best.row, users_low=3))
    dearer = replace(best, gpus=4, row=replace(best.row, users_low=9))
    risk = summary_of(replace(answer, layouts=(best, smaller, dearer))).risk
    month = best.usd_per_month
    assert f"Up to 3 users at once, {spoken(smaller)} costs less in total: ${month / 2:,.0f} a month" in risk
    assert risk.count("costs less") == 1


def test_what_is_as_cheap_within_its_interval_is_said_beside_the_best(answer: hc.CompareResult) -> None:
    best = answer.layouts[0]
    assert best.row is not None and best.asked is not None
    fewer = replace(best.row, users_low=best.row.users_low - 1)
    near = replace(best, choice={"max_num_seqs": 7}, row=fewer)
    l40s = replace(best.asked, gpu=find_gpu("l40s"))  # cheaper, and known so badly that few users are sure
    other = replace(best, choice={"max_num_seqs": 9}, row=replace(best.row, users_low=2), asked=l40s)
    dearer = replace(best, choice={"max_num_seqs": 11}, row=fewer, gpus=2 * best.gpus)
    found = replace(answer, layouts=(best, near, other, dearer))
    figures = dict(summary_of(found).figures)
    assert figures["nearly as cheap"].startswith("max_num_seqs 7 (")
    unsure = r"max_num_seqs 9: \d+ % cheaper per expected user \(\$[\d.,]+ instead of \$[\d.,]+\), but known less well$"
    assert re.match(unsure, figures["may be as cheap"])
    assert re.search(r"nearly as cheap: max_num_seqs 7 \(\$[\d.]+ per user: \+\d+ %", str(found))
    assert "max_num_seqs 11" not in str([each for each in figures.items() if "as cheap" in each[0]])
    assert "nearly as cheap" not in dict(summary_of(replace(found, sort="ttft")).figures)


def test_what_is_more_to_see_is_told_as_it_is_asked_for(answer: hc.CompareResult) -> None:
    called = replace(answer, explain=False)
    assert "\nexplain=True shows every column" in str(called)
    assert "explain=True" in called._repr_html_()
    typed = replace(called, asked="headcount compare --model qwen3-0.6b")
    assert "\n--explain shows every column" in str(typed)


def test_memory_outside_the_gpus_is_said_to_have_no_price(answer: hc.CompareResult) -> None:
    offloading = replace(answer, axes=(Axis("kv_offloading_size", (None, 128)),))
    assert NO_MEMORY_PRICE in map(str, head_of(offloading))
    assert NO_MEMORY_PRICE not in str(answer)


def _knee(*log_sizes: float) -> SLOCrossing:
    return SLOCrossing(log_size=float(np.mean(log_sizes)), log_sizes=np.array(log_sizes))


def test_only_an_interval_that_includes_0_is_said_to(answer: hc.CompareResult) -> None:
    """Both are 4 % dearer."""
    first = answer.layouts[0]
    assert first.row is not None
    luck = (-0.02, 0.0, 0.02)
    best = replace(first, row=replace(first.row, users=1150, users_low=1040, knee=_knee(5.1, 5.1, 5.1)))
    row = replace(first.row, users=1100, users_low=1000)
    sure = replace(first, choice={"max_num_seqs": 7}, row=replace(row, knee=_knee(5.0, 5.0, 5.0)))
    noisy = replace(first, choice={"max_num_seqs": 8}, row=replace(row, knee=_knee(*(5 + 5 * each for each in luck))))
    ((label, told),) = ties([best, sure, noisy], best, lambda each: each.name)
    assert label == "nearly as cheap"
    named, other = told.split("; ")
    assert named.endswith("per user: +4 %)")
    assert other.endswith("per user: +4 %, but its interval includes 0 %)")


def test_who_is_cheaper_by_what_is_expected_is_said_to_be_with_waits_that_are_several_times_shorter(
    answer: hc.CompareResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = answer.layouts[0]
    assert first.row is not None
    best = replace(first, row=replace(first.row, users=688, users_low=617))
    drafts = replace(first, choice={"max_num_seqs": 9}, row=replace(first.row, users=735, users_low=525))
    waits = {"ttft_s": (0.5, 0.6), "tpot_s": (0.0054, 0.0171)}
    monkeypatch.setattr(Layout, "p95_s", lambda self, name: waits[name][self is best])
    ((label, told),) = ties([best, drafts], best, lambda each: each.name)
    assert label == "may be as cheap"
    assert "max_num_seqs 9: 6 % cheaper per expected user ($" in told
    assert told.endswith("), but known less well, TPOT p95 5.4 ms instead of 17.1 ms")


def test_what_figures_leave_out_is_said_under_the_table(answer: hc.CompareResult) -> None:
    best, *others = answer.layouts
    assert best.row is not None and best.asked is not None
    rows = {error: replace(best.row, evidence="coarse", step_time_error=error) for error in (0.1, 0.41)}
    sure, unsure = (replace(best, choice={"max_num_seqs": 7}, row=rows[error]) for error in (0.1, 0.41))

    def said(*layouts: Layout) -> str:
        return " ".join(str(replace(answer, layouts=layouts)).split())

    assert "≈" not in said(best)
    assert "≈: from few replications; users may be off by 5 %;" in said(best, sure)
    assert "off by 15 %;" in said(best, unsure)
    assert "off by 5 %, or by 15 % where steps may take at least 30 % longer;" in said(best, sure, unsure)
    elsewhere = replace(best, asked=replace(best.asked, gpu=find_gpu("l40s")))
    dearer_but_vague = replace(elsewhere, row=replace(best.row, users_low=2, users=9 * best.row.users))
    told = said(best, elsewhere)
    assert "list prices: RunPod, but AWS for l40s as cheap per user as h100-sxm: l40s at $3.99 an hour (AWS: $" in told
    assert UNSURE_MEANING not in told
    assert UNSURE_MEANING in said(best, dearer_but_vague)
    assert "list prices" not in said(best, *others) and UNSURE_MEANING not in said(best)


def test_one_server_leaves_routers_nothing_to_choose(answer: hc.CompareResult) -> None:
    best = answer.layouts[0]
    assert best.row is not None
    axes = (Axis("router", ("least-outstanding", "session-affinity")),)
    one = replace(best, row=replace(best.row, replicas=1, dp=1, tp=1))
    wide = replace(best, row=replace(best.row, replicas=1, dp=1, tp=2))
    several = replace(best, row=replace(best.row, replicas=2, dp=1))
    nobody = replace(best, row=replace(best.row, users=0, users_low=0))
    told = "each layout is one server, so routers make no difference"

    def said(*layouts: Layout) -> str:
        return " ".join(str(replace(answer, axes=axes, layouts=layouts)).split())

    assert told in said(one) and "-tp 1 makes" not in said(one)
    assert f"{told}; -tp 1 makes a server of each GPU" in said(wide)
    assert told not in said(one, several) and told not in said(nobody)
    assert told not in str(replace(answer, layouts=(one,)))


def test_values_that_come_to_the_same_settings_are_one_row() -> None:
    given: dict[str, Any] = {"max_num_seqs": [2, 4], "kv_cache_dtype": ["auto", "bfloat16"], "simulate_all": True}
    found = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, **given, **QUICK)
    assert [each.choice["max_num_seqs"] for each in found.layouts] == [4, 2]
    assert [each.other_names for each in found.layouts] == [(), ()]  # both are called KV bfloat16
    listed = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, block_size=[16, 32], max_num_seqs=2, **QUICK)
    assert len(listed.layouts) == 2
    budget = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, gpu_memory_utilization=[None, 0.92], max_num_seqs=2, **QUICK)
    (only,) = budget.layouts
    assert only.other_names == ("gpu_memory_utilization 0.92",)
    assert f"{only.name}: the same as gpu_memory_utilization 0.92" in str(budget)
    assert budget.rows()[0]["other_names"] == ["gpu_memory_utilization 0.92"]


def test_who_may_be_before_the_first_by_few_replications_is_confirmed(answer: hc.CompareResult) -> None:
    best = answer.layouts[0]
    assert best.row is not None and best.row.coarse is not None
    lucky = replace(best, row=replace(best.row, users_low=20))
    other, near, behind = (replace(best, row=replace(best.row.coarse, users_low=low)) for low in (22, 20, 19))
    for sort in ("cost", "users"):
        assert to_confirm([lucky, behind, other], sort) is other
        assert to_confirm([lucky, behind], sort) is None
        assert to_confirm([other, behind], sort) is other
        assert to_confirm([behind, lucky, near], sort) is near


def test_options_that_the_table_has_no_room_for_are_named(answer: hc.CompareResult) -> None:
    best = answer.layouts[0]
    many = tuple(replace(best, choice={"max_num_seqs": number}) for number in range(1, 19))
    options = summary_of(replace(answer, layouts=(best, *many))).options
    assert options is not None
    assert options.title == "8 of 19 options"
    named = options.note.partition("The other 11 options: ")[2]
    assert [int(name.split()[1]) for name in named.split("; ") if name.startswith("max")] == list(range(8, 16))
    assert named.endswith("and 3 more in the table below.")


def test_the_first_page_says_what_to_buy_for_whom_and_that_more_servers_fail_more_softly(
    answer: hc.CompareResult,
) -> None:
    best = answer.layouts[0]
    page = summary_of(answer)
    assert f"for up to {best.users} users at once: ${best.usd_per_month:,.0f} a month" in page.answer
    assert {each.num_servers for each in answer.layouts if each.users} == {1, 2}
    assert page.options is not None
    assert "an option of 2 servers still serves about 50 % of its users, an option of 1 none" in page.options.note


def test_a_layout_that_cannot_run_stays_with_its_reason(answer: hc.CompareResult) -> None:
    lost = [each for each in answer.layouts if each.choice["tensor_parallel_size"] == 3]
    assert [each.users for each in lost] == [0, 0]
    assert "does not divide 2 GPUs" in str(answer)
    assert answer.layouts[-1] in lost


@pytest.mark.parametrize("sort", SORTS)
def test_layouts_are_ranked_by_the_column_asked_for(answer: hc.CompareResult, sort: str) -> None:
    served = [each for each in ranked(answer.layouts, sort) if each.row and each.row.users]
    measured = [SORTS[sort](each) for each in served]
    assert measured == sorted(measured)
    assert len(served) == 4


def test_the_best_beside_itself_is_exactly_1(answer: hc.CompareResult) -> None:
    first = answer.rows()[0]
    assert first["users_over_best"] == first["usd_per_user_over_best"] == {"mean": 1.0, "low": 1.0, "high": 1.0}


def test_the_changes_from_the_base_to_the_best_multiply_to_the_whole(answer: hc.CompareResult) -> None:
    found = answer.attribution
    assert found is not None
    assert found.whole is not None
    assert math.prod(each.ratio.mean for each in found.chain if each.ratio) == pytest.approx(found.whole.mean)
    assert [each.what for each in found.chain][-1] == "max_num_seqs 4"


def test_one_layout_is_a_comparison_with_nothing_to_gain() -> None:
    alone = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, max_num_seqs=2, **QUICK)
    assert [each.name for each in alone.layouts] == ["unchanged"]
    assert alone.attribution is None
    assert alone.verdict is hc.Verdict.DONE


def test_far_behind_by_the_estimate_is_only_screened() -> None:
    few = hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, max_num_seqs=[4, 1], **QUICK)
    assert [each.is_screened_only for each in few.layouts] == [False, True]
    for text in (str(few), str(replace(few, explain=True))):
        assert f"{few.layouts[1].name}: screened only. Estimated to be more than" in text
        assert "'over' is the least that a user costs" in " ".join(text.split())
    assert few.rows()[1]["users_estimated"] > 0


def test_too_many_layouts_are_refused_with_their_number() -> None:
    axes = axes_of({"max_num_seqs": list(range(1, 102)), "block_size": [16, *range(32, 320, 16)]})
    with pytest.raises(ValueError, match=r"1,919 layouts \(101 of max_num_seqs × 19 of block_size\) are too many"):
        choices(axes, most=MOST_LAYOUTS, what="layouts")


def test_drafts_are_compared_by_a_list_in_which_null_stands_for_none() -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 1.0}
    given: dict[str, Any] = {"speculation": [None, drafts], "gpus": 1, "max_num_seqs": 2, "simulate_all": True}
    found = hc.compare("qwen3-0.6b", "h100-sxm", **given, **QUICK)
    typed = Objects(SpeculativeConfig()).read(json.dumps([None, drafts]))
    assert {each.choice["speculation"] for each in found.layouts} == set(typed)
    assert [each.name for each in found.layouts] == ["ngram with 3 drafts", "no speculative decoding"]
    drafted = found.drafts
    assert drafted is not None and (drafted.without.name, drafted.drafting.name) == (
        "no speculative decoding", "ngram with 3 drafts",
    )  # fmt: skip
    before_s, after_s = drafted.tpot_p50_s
    assert before_s == pytest.approx(0.01, rel=0.01) and before_s > 2 * after_s, "all of three drafts are accepted"
    assert f"answers are {before_s / after_s:.1f} times as fast" in str(found)
    assert "; more users, too: " in str(found)


def test_values_are_named_as_people_say_them() -> None:
    assert value_text("tensor_parallel_size", 2) == "TP 2"
    assert value_text("kv_cache_dtype", "fp8") == "KV fp8"
    assert value_text("enable_prefix_caching", False) == "enable_prefix_caching off"
    assert value_text("max_num_batched_tokens", 16384) == "max_num_batched_tokens 16,384"


def test_what_no_layout_can_answer_is_an_error_with_each_reason_once() -> None:
    with pytest.raises(ValueError, match=r"^tensor parallel size 3 does not divide 1 GPU; leave it out to try each"):
        hc.compare("qwen3-0.6b", "h100-sxm", gpus=1, tensor_parallel_size=3, **QUICK)
    with pytest.raises(ValueError, match=r"^none of 2 layouts runs; 1 GPU: tensor .* divide 1 GPU; .*; 2 GPUs: tensor"):
        hc.compare("qwen3-0.6b", "h100-sxm", gpus=[1, 2], tensor_parallel_size=3, **QUICK)


def test_formats_that_the_checkpoint_has_of_itself_are_named() -> None:
    layouts = Layouts(
        model="qwen3-0.6b",
        workload=SHORT_ANSWERS,
        traffic=TrafficInput(),
        base={"gpu": "h100-sxm", "gpus": 1, "router": None, "max_model_len": 4096},
        study={"slo": find_slo("chat"), "precision": 0.9, "replications": 2, "seed": 0},
    )
    own = layouts.screened({"quantization": "none", "kv_cache_dtype": "auto"})
    assert own.name == spoken(own) == "bfloat16 weights, KV bfloat16"
    assert layouts.screened({"quantization": "fp8", "kv_cache_dtype": "fp8"}).name == "fp8 weights, KV fp8"
    assert value_text("quantization", "none") == "the checkpoint's weights"


def test_formats_side_by_side_come_with_a_word_on_their_quality(answer: hc.CompareResult) -> None:
    formats = replace(answer, axes=(Axis("kv_cache_dtype", ("auto", "fp8")),))
    assert PRECISION_REMARK in map(str, head_of(formats))
    assert PRECISION_REMARK not in str(answer)


def test_gpus_side_by_side_come_with_a_word_on_their_number(answer: hc.CompareResult) -> None:
    best, *others = answer.layouts
    assert best.asked is not None
    other = replace(best, asked=replace(best.asked, gpu=find_gpu("l40s")))
    both = replace(answer, layouts=(best, other, *others), explain=True)
    said = "For a given number of users, whole servers of another GPU may cost less: see headcount plan."
    assert said in " ".join(str(both).split())
    options = summary_of(both).options
    assert options is not None
    assert said in options.note
    assert said not in " ".join(str(replace(answer, explain=True)).split())


def test_a_gpu_is_named_as_the_catalog_has_it() -> None:
    assert catalog_names("h100") == "h100-sxm"
    assert catalog_names(["h100", "l40s", "h100-sxm"]) == ("h100-sxm", "l40s")
    assert [axis.values for axis in varied({"gpu": "h100,l40s"})] == [("h100-sxm", "l40s")]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpu": "h10"}, "no GPU 'h10'"),
        ({"sort": "price"}, "no order 'price'"),
        ({"quantization": ["fp8", "fp9"]}, "fp9"),
        ({"max_nm_seqs": 3}, "max_nm_seqs"),
        ({"gpus": []}, "gpus is an empty list"),
        ({"router": ["random", "round-robbin"]}, "round-robbin"),
    ],
    ids=str,
)
def test_what_is_not_known_is_told_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        hc.compare(**{"model": "qwen3-0.6b", "gpu": "h100-sxm", **QUICK, **given})


@pytest.mark.slow
def test_the_command_answers_as_python_does(
    headcount: Callable[..., Any], answer: hc.CompareResult, tmp_path: Path
) -> None:
    report = tmp_path / "compare.html"
    ran = headcount(
        "compare", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--gpus", "2", "-tp", "1,2,3", "--max-num-seqs", "2,4",
        "--workload", SHORT_ANSWERS, "--latency-model", "constant", "--step-s", "0.01", "--replications", "2",
        "--precision", "0.9", "--no-store", "--all", "--max-model-len", "4096", "--json", "--report", report,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["best"] == answer.best.name if answer.best else None
    assert [each["users_low"] for each in found["layouts"][:4]] == [each["users_low"] for each in answer.rows()[:4]]
    page = report.read_text(encoding="utf-8")
    assert "headcount compare --model qwen3-0.6b" in page
    assert "max_num_seqs 4" in page


def test_a_list_for_capacity_points_here(headcount: Callable[..., Any]) -> None:
    ran = headcount("capacity", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--max-num-seqs", "128,256")
    assert ran.code == 2
    assert "'headcount compare' takes lists" in ran.err


@pytest.mark.slow
def test_a_row_is_compared_by_the_figures_it_shows_and_each_gpu_has_its_step_time_error() -> None:
    found = hc.compare("qwen3-0.6b", ["h100-sxm", "l40s"], gpus=1, replications=4, simulate_all=True)
    best, other = found.layouts
    assert best.usd_per_user_month is not None
    assert other.usd_per_user_month is not None
    change = f"{100 * (other.usd_per_user_month / best.usd_per_user_month - 1):+.0f} % ("
    assert change in str(found)
    errors = [str(note) for note in found.diagnostics if note.code == "step-time-error"]
    assert [text.partition(":")[0] for text in errors] == [best.name, other.name]


@pytest.mark.parametrize("sort", ["cost", "users", "ttft", "tpot", "month"])
def test_where_no_layout_serves_a_user_for_sure_none_is_called_the_best(answer: hc.CompareResult, sort: str) -> None:
    """Whatever is expected: an interval may begin at 0."""
    unsure = [replace(each, row=each.row and replace(each.row, users_low=0)) for each in answer.layouts if each.row]
    nobody = replace(answer, layouts=ranked(unsure, sort), sort=sort)
    assert nobody.best is None and nobody.figures()["best"] is None
    assert verdict_of(nobody.layouts) is hc.Verdict.TARGET_MISSED
    assert "no layout serves a user at 95 % confidence; the reasons follow the table" in str(nobody)
    assert all(f"{each.name}: {each.reason}" in str(nobody) for each in nobody.layouts)
    assert not any(f"; {order} of" in str(nobody) for order in ORDERS.values())
    sure = next(each for each in answer.layouts if each.users)
    assert replace(nobody, layouts=ranked([*unsure, sure], sort)).best is sure
