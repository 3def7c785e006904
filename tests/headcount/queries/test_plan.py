"""What a plan answers, and how; formulas stand in for simulations."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.queries.plan_rows import DROPPED, SCREENED, gpus_text
from headcount.queries.result import SCREENING, Progress
from headcount.views.of import plan_text
from kvcache.gpus.gpu import find_gpu
from simulator.study.capacity_question import CapacityQuestion
from tests.headcount.told import summary_of
from tests.simulator.study.made_up_fleets import simulate_as

PER_SERVER = {"h100-sxm": 200, "l40s": 60, "h200-sxm": 400}
ON = ("--model", "llama-3.1-8b", "--latency-model", "constant", "--step-s", "0.02", "--max-num-seqs", "32", "-tp", "1")
GIVEN: dict[str, Any] = {
    "latency_model": "constant", "step_s": 0.02, "max_num_seqs": 32, "tensor_parallel_size": 1,
    "gpu": ["h100-sxm", "l40s"],
}  # fmt: skip
Run = Callable[..., Any]


@pytest.fixture(autouse=True)
def formulas(monkeypatch: pytest.MonkeyPatch) -> None:
    def linear(question: CapacityQuestion, servers: int) -> int:
        return PER_SERVER.get(question.gpu.name, 100) * servers

    simulate_as(monkeypatch, linear)


def test_the_first_page_says_which_gpu_costs_less_with_a_spare_server() -> None:
    """One large server, doubled, costs more than one more of several small ones."""
    answer = hc.plan("llama-3.1-8b", users=500, **GIVEN)
    large, small = answer.fleets[:2]
    large = replace(large, servers=1, gpus=1, usd_per_month=3000.0)
    small = replace(small, servers=3, gpus=3, usd_per_month=3600.0, evidence="coarse")
    titles = [find_gpu(row.gpu).title for row in (small, large)]

    def with_spare() -> str:
        return dict(summary_of(answer).figures)["with a spare server"]

    vars(answer)["fleets"] = (large, small)
    assert with_spare() == f"4 × {titles[0]}, ≈ $4,800 a month, or 2 × {titles[1]}, $6,000 a month"
    vars(answer)["fleets"] = (large, replace(small, servers=1))
    assert with_spare() == f"2 × {titles[1]}, $6,000 a month"
    assert "There is one server and no spare" in summary_of(answer).risk
    vars(answer)["fleets"] = (replace(large, spare_servers=1), small)
    assert "with a spare server" not in dict(summary_of(answer).figures)


def test_the_summary_says_which_formats_may_cost_less() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, **GIVEN)
    suggestions = [("--kv-cache-dtype fp8", 1.3), ("--quantization fp8", 1.01), ("--max-num-seqs 512", 2.0)]
    lifted = [{"change": change, "ratio": ratio} for change, ratio in suggestions]
    vars(answer)["evidence"] = {"estimated_suggestions": lifted}
    options = summary_of(answer).options
    assert options is not None
    assert "Estimated gains of smaller number formats: 30% more users with fp8 KV cache. " in options.note
    vars(answer)["evidence"] = {"estimated_suggestions": lifted[1:]}
    options = summary_of(answer).options
    assert options is not None and "smaller number formats" not in options.note


def test_the_answer_names_the_cheapest_fleet_its_cost_and_the_next() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, **GIVEN)
    assert answer.best is not None
    assert (answer.best.gpu, answer.gpus, answer.best.users_low) == ("h100-sxm", 3, 600)
    assert answer.usd_per_month == pytest.approx(3 * 3.99 * 730)
    text = str(answer)
    told = " ".join(text.split())
    assert "500 users: 3 × h100-sxm, 3 × TP1: $8,738 a month, $17.48 per user" in told
    assert "per user; at full load 600 users at 95 % confidence, $14.56 per user" in told
    assert "price of a GPU's hour: NVIDIA H100 SXM $3.99 by RunPod" in str(replace(answer, explain=True))
    assert "next best: 9 × l40s, 9 × TP1, costs 40 % more" in text
    assert "start each of the 3 servers with: vllm serve" in text


def test_the_cheapest_fleet_comes_first_in_the_table() -> None:
    frame = hc.plan("llama-3.1-8b", users=500, **GIVEN).to_frame()
    assert list(frame["usd_per_month"]) == sorted(frame["usd_per_month"])


def test_growth_and_headroom_are_planned_for_but_today_s_users_pay() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, growth=0.3, headroom=0.1, spare=1, **GIVEN)
    assert answer.users_to_serve == pytest.approx(500 * 1.3 * 1.1)
    assert answer.best is not None
    assert answer.best.users_low is not None
    assert answer.best.users_low >= 715
    assert (answer.best.servers, answer.best.spare_servers) == (5, 1)
    assert answer.best.usd_per_user_month == pytest.approx(5 * 3.99 * 730 / answer.best.users_low)
    assert "with 30 % growth and 10 % headroom: 715 users to serve" in str(answer)
    assert "→ 4 servers + 1 spare → 5 GPUs" in str(answer)


@pytest.mark.parametrize("given", [{"employees": 2000}, {"requests_per_s": 5.0}, {"tokens_per_day": 10**9}], ids=str)
def test_the_chain_starts_from_what_was_given_and_says_what_is_assumed(given: dict[str, float]) -> None:
    answer = hc.plan("llama-3.1-8b", **given, **GIVEN)
    assert answer.demand.links[0].value == pytest.approx(next(iter(given.values())))
    assumed = [link for link in answer.demand.links if link.assumed]
    assert assumed
    assert all(link.source for link in assumed)
    assert sum(str(answer).count(f"({kind};") for kind in ("assumed", "measured")) == len(assumed)
    assert " prompt tokens/s and " in str(answer)


def test_a_trace_s_tokens_are_measured_and_the_peak_of_time_zones_has_an_hour(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    rows = "".join(f"{second},900,100\n" for second in range(50))
    trace.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n{rows}")
    zones = "+0=50%,+12=50%"
    answer = hc.plan("llama-3.1-8b", tokens_per_day=10**9, time_zones=zones, workload=trace, **GIVEN)
    kinds = {link.name: link.kind for link in answer.demand.links}
    assert (kinds["tokens_per_request"], kinds["time_zones"]) == ("measured", "given")
    assert re.search(r"peak: \d+:\d\d UTC", str(answer))
    said = re.findall(r"think time 83.8 s .set yours with --think-time.: ([\d,]+) users send ([\d.]+) requests/s, "
                      r"([\d.]+) times the trace's own 1\b", " ".join(str(answer).split()))  # fmt: skip
    ((users, rate, times),) = said
    assert float(times) == float(rate)  # of one request a second
    assert float(rate) == pytest.approx(int(users.replace(",", "")) / (83.8 + 3), rel=0.1)


def test_the_peak_of_a_week_has_a_day() -> None:
    week = [1.0] * 168
    week[24 + 15] = 9.0
    answer = hc.plan("llama-3.1-8b", employees=2000, daily_profile=",".join(map(str, week)), **GIVEN)
    assert "peak: Tuesday 15:30 local time" in str(answer)


def test_the_chain_says_how_long_requests_are_and_that_a_longer_limit_does_not_lengthen_them() -> None:
    asked = hc.plan("llama-3.1-8b", users=50, gpu="h100-sxm", workload="rag", max_model_len=32768)
    assert asked.traffic is not None
    prompt, output = asked.traffic.prompt_tokens, asked.traffic.output_tokens
    said = f"mean request, as expected: {prompt:,.0f} prompt tokens and {output:,.0f} output tokens"
    assert f"{said}; at most 32,768 together" in str(asked)
    (note,) = [note for note in asked.diagnostics if note.code == "context-far-below-limit"]
    assert note.text.endswith("add --traffic context=x5")
    longer = hc.plan(
        "llama-3.1-8b", users=50, gpu="h100-sxm", workload="rag", max_model_len=32768, traffic={"context": "x5"}
    )
    unlimited = hc.plan("llama-3.1-8b", users=50, gpu="h100-sxm", workload="rag")
    assert "at most" not in str(unlimited).partition("mean request")[2].partition("→")[0]
    assert not {note.code for answer in (longer, unlimited) for note in answer.diagnostics} & {note.code}


def test_a_given_think_time_is_not_assumed() -> None:
    answer = hc.plan("llama-3.1-8b", requests_per_s=5.0, think_time_s=30.0, response_time_s=10.0, **GIVEN)
    assert answer.demand.users == pytest.approx(5 * 40)
    assert not any(link.assumed for link in answer.demand.links)


def test_the_short_table_names_the_fleets_that_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = hc.plan("llama-3.1-8b", users=500, **GIVEN)
    first, last = [row for row in answer.fleets if row.runs]
    assert "dearer, see --explain" not in str(answer)
    monkeypatch.setattr(plan_text, "MOST_SHOWN", 1)
    text = " ".join(str(answer).split())
    assert f"dearer, see --explain: {gpus_text(last)} (" in text
    assert f"{first.gpu} {first.gpus} " in text and f"{last.gpu} {last.gpus} " not in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"users": 100, "employees": 2000}, "--employees and --users are given"),
        ({}, "nothing says how many people there are"),
        ({"users": 100, "active_share": 0.2}, "--active-share does not belong to --users"),
        ({"employees": 100, "peak_share": 1.5}, "--peak-share is 1.5"),
        ({"users": 100, "time_zones": "+1=60%,-5=40%"}, "--time-zones does not belong to --users"),
        ({"users": 100, "workload": "chatt"}, "no workload 'chatt'"),
        ({"users": 100, "price": {"h101-sxm": 2.0}}, "no GPU 'h101-sxm'"),
        ({"users": 100, "price": -1.0}, "--price is -1 USD"),
        ({"users": 100, "api_input_price": 0.1}, "give both --api-input-price and --api-output-price"),
        ({"users": 100, "slo": "chta"}, "no SLO 'chta'"),
        ({"users": 10**8, "growth": 1.0}, "growth and headroom make 200,000,000 users"),
    ],
    ids=str,
)
def test_what_needs_no_estimate_is_checked_before_any(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], said: str
) -> None:
    def estimate(*_: Any) -> None:
        raise AssertionError("a layout was estimated")

    monkeypatch.setattr("headcount.queries.plan.mean_request", estimate)
    with pytest.raises(ValueError, match=re.escape(said)):
        hc.plan("llama-3.1-8b", **given, **GIVEN)


def test_progress_counts_screened_layouts_before_fleets() -> None:
    seen: list[Progress] = []
    hc.plan("llama-3.1-8b", users=500, progress=seen.append, **GIVEN)
    screened = [each for each in seen if each.what == SCREENING]
    assert [(each.done, each.total) for each in screened] == [(1, 2), (2, 2)]
    assert all("users (estimated)" in each.note for each in screened)
    assert not any(each.what for each in seen[len(screened) :])


def test_a_price_decides_which_fleet_is_cheapest() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, price={"l40s": 0.5}, **GIVEN)
    assert answer.best is not None
    assert (answer.best.gpu, answer.best.usd_per_gpu_hour) == ("l40s", 0.5)


@pytest.mark.slow
def test_every_layout_has_its_state_and_a_reason_where_it_did_not_take_part() -> None:
    answer = hc.plan("llama-3.1-8b", users=500, **{**GIVEN, "tensor_parallel_size": None, "gpu": ["l4", "h200-sxm"]})
    assert len({(row.gpu, row.tp) for row in answer.layouts}) == 8
    assert len({(row.gpu, row.tp, row.router) for row in answer.layouts}) == len(answer.layouts)
    assert all(row.reason for row in answer.layouts if row.state in (SCREENED, DROPPED))


def test_each_format_in_a_list_is_a_layout() -> None:
    answer = hc.plan("llama-3.1-8b", users=50, quantization=["fp8", "none"], kv_cache_dtype=["auto", "fp8"], **GIVEN)
    found = {(row.gpu, row.quantization, row.kv_cache_dtype) for row in answer.layouts}
    assert len(found) == 8


def test_the_json_has_one_object_with_the_fleets_and_the_chain(headcount: Run) -> None:
    ran = headcount("plan", *ON, "--users", 500, "--gpu", "h100-sxm,l40s", "--json")
    found = json.loads(ran.out)
    assert ran.code == 0
    assert found["best"] == found["fleets"][0]
    assert found["demand"]["users"] == 500
    assert found["meets_target"] is True
    assert found["best"]["serve_line"].startswith("vllm serve ")


@pytest.mark.slow
def test_a_target_that_no_fleet_meets_ends_with_1(headcount: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda *_: 0)
    ran = headcount("plan", *ON, "--users", 500, "--gpu", "h100-sxm")
    assert ran.code == 1
    assert "None of the fleets tried serves 500 users" in ran.out
    assert "not even 1 user meets the SLO" in ran.err


def test_300m_tokens_a_day_are_300_million(headcount: Run) -> None:
    ran = headcount("plan", *ON, "--tokens-per-day", "300M", "--gpu", "h100-sxm")
    assert "prompt and output tokens a day: 300,000,000 tokens" in ran.out


def test_a_plan_that_is_stopped_does_not_say_that_no_fleet_serves_the_users() -> None:
    seen: list[hc.Result] = []
    hc.plan("llama-3.1-8b", users=500, **GIVEN, progress=lambda told: seen.append(told.so_far) if told.so_far else None)
    stopped, done = str(seen[0]), str(seen[-1])
    assert "500 users: stopped before a fleet was found that serves them" in stopped
    assert "estimated: not simulated yet" in stopped
    assert "stopped" not in done
    assert "3 × TP1: 3 servers of 1 GPU each." in done


def test_users_that_few_replications_hardly_know_carry_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda _, servers: 100 * servers, precision=0.3)
    answer = hc.plan("llama-3.1-8b", users=500, **GIVEN)
    assert any("simulation noise is still ±30.00% of the users after" in str(note) for note in answer.diagnostics)


def test_where_no_fleet_serves_the_users_it_tells_what_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def only_large_limits(question: CapacityQuestion, servers: int) -> int:
        return 100 * servers if (question.slo.ttft_s or 0) > 1 or question.gpu.name == "h200-sxm" else 0

    simulate_as(monkeypatch, only_large_limits)
    answer = hc.plan("llama-3.1-8b", users=50, **GIVEN | {"gpu": "h100-sxm"})
    found = {each.change: each.sized for each in answer.nearest}
    assert int(answer.verdict) == 1
    assert "--ttft 1250ms" in found
    assert all(sized.users() >= 50 for sized in found.values())
    assert "with --ttft 1250ms: 1 × h100-sxm, 1 × TP1, serves them for $2,913 a month" in str(answer)


def test_a_wide_interval_ends_with_3(headcount: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate_as(monkeypatch, lambda *_: 600, precision=0.2)
    assert headcount("plan", *ON, "--users", 500, "--gpu", "h100-sxm").code == 3


def test_a_large_fleet_says_from_how_many_servers_it_follows() -> None:
    answer = hc.plan("llama-3.1-8b", users=100_000, **GIVEN)
    assert answer.best is not None
    assert answer.best.servers == 500
    assert [note.code for note in answer.diagnostics].count("fleet-scaled") == 1
    assert "scaled from" in str(answer)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--users", "0"), "'0' is not a whole number of at least 1"),
        (("--users", "-3"), "'-3' is not a whole number of at least 1"),
        (("--users", "1000000000"), "at most 100,000,000"),
        (("--users", "5", "--gpu", ""), "gpu has an empty name or none"),
        (("--users", "5", "--gpu", "h100-sxm,,l40s"), "'h100-sxm,,l40s' has an empty entry; leave out a comma"),
        (("--users", "5", "--gpu", "h100-sxm,h10"), "no GPU 'h10'; did you mean"),
        (("--users", "5", "--gpu", "a30"), "give --price a30=USD"),
        (("--users", "5", "--gpu", "t4", "--price", "0"), "give one above 0"),
        (("--users", "5", "--gpu", "t4", "--price", "l4=1"), "no GPU of the plan 'l4'"),
        (("--users", "5", "--price", "cheap"), "is not a number"),
        (("--users", "5", "--quantization", "fp9"), "no quantization 'fp9'"),
        (("--users", "5", "--employees", "9"), "--employees and --users are given"),
        (("--users", "5", "--peak-share", "10%"), "--peak-share does not belong to --users"),
        ((), "nothing says how many people there are"),
        (("--users", "5", "--growth", "-5%"), "'-5%' is not a share"),
        (("--users", "100000000", "--growth", "50%"), "plan for at most 100,000,000"),
        (("--users", "5", "--api-input-price", "3"), "give both"),
        (("--users", "5", "--api-input-price", "-3", "--api-output-price", "1"), "the API's price of input tokens"),
    ],
    ids=str,
)
def test_bad_input_is_one_clear_line(words: tuple[str, ...], told: str, headcount: Run) -> None:
    ran = headcount("plan", *ON, *words)
    assert ran.code == 2, ran
    assert (ran.out, ran.err.count("\n")) == ("", 1)
    assert told in ran.err


def test_an_empty_list_of_gpus_is_refused_in_python() -> None:
    with pytest.raises(ValueError, match="gpu has an empty name or none"):
        hc.plan("llama-3.1-8b", users=5, gpu=[])


@pytest.mark.slow
def test_the_report_is_one_file_with_every_part(tmp_path: Path) -> None:
    hc.plan("llama-3.1-8b", users=500, **GIVEN).report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    for part in ("Layouts compared", "From people to GPUs", "Cost and break-even", "Run it again"):
        assert f"<h2>{part}</h2>" in text
    assert "and what do they cost?" in text
    assert not re.search(r"(src|href)=\"https?:", text)


def test_a_notebook_shows_tables() -> None:
    assert "<table>" in hc.plan("llama-3.1-8b", users=500, **GIVEN)._repr_html_()
