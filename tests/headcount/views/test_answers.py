"""Every answer is one object: text, JSON, tables, notebooks and reports only show it."""

import ast
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount import api
from headcount.diagnostics import Facts, RefusedError, diagnostics, find_diagnostics
from headcount.diagnostics.shipped import step_time_error, step_times_not_measured
from headcount.queries.report_data.percentiles import P99_COLUMN, P99_MEANING
from headcount.queries.result import Result
from headcount.text.units import latency_text
from kvcache.gpus.gpu import find_gpu
from simulator.deployment import resolve
from simulator.latency.gpu_constants import measured_text
from simulator.study.capacity_row import CapacityRow
from tests.headcount.conftest import SHORT_ANSWERS, figures
from tests.headcount.told import summary_of

Run = Callable[..., Any]
HOUSE = Path(api.__file__).parent
SOURCES = sorted(HOUSE.rglob("*.py"))
ON = ("llama-3.1-8b", "h100-sxm")
TYPED = ("--model", ON[0], "--gpu", ON[1])
SMALL = {
    "max_num_seqs": 2, "max_model_len": 4096, "latency_model": "constant", "step_s": 0.03, "workload": SHORT_ANSWERS,
}  # fmt: skip
LOAD = {"input_len": 100, "output_len": 10, "concurrency": 2}


def typed(settings: dict[str, Any]) -> tuple[str, ...]:
    return tuple(word for name, value in settings.items() for word in (f"--{name.replace('_', '-')}", str(value)))


@pytest.fixture(scope="module")
def answers() -> dict[str, Result]:
    return {
        "memory": hc.memory(*ON),
        "memory --compare": hc.memory_comparison(*ON, tensor_parallel_size=1),
        "training-memory": hc.training_memory(*ON, recompute="full"),
        "simulate": hc.simulate(*ON, **LOAD),
        "capacity": hc.capacity(*ON, gpus=[1], replications=2, **SMALL),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("memory", ()),
        ("memory --compare", ("-tp", "1")),
        ("training-memory", ("--recompute", "full")),
        ("simulate", typed(LOAD)),
        ("capacity", ("--gpus", "1", "--replications", "2", *typed(SMALL))),
    ],
)
def test_a_command_prints_what_python_is_answered(
    headcount: Run, answers: dict[str, Result], command: str, options: tuple[str, ...]
) -> None:
    answer = answers[command]
    ran = headcount(*command.split(), *TYPED, *options, "--json")
    assert ran.code == answer.verdict
    assert figures(ran.out) == json.loads(json.dumps(answer.to_json()))


def test_every_answer_can_be_read_as_text_table_and_html(answers: dict[str, Result]) -> None:
    for answer in answers.values():
        figures = [word for word in str(answer).split() if any(letter.isdigit() for letter in word)]
        assert repr(answer) == str(answer)
        assert len(figures) > 10
        assert len(answer.to_frame()) == len(answer.rows())
        assert "<table>" in answer._repr_html_()
        assert answer.asked.startswith(f"hc.{answer.asked[3:].split('(')[0]}('llama-3.1-8b', 'h100-sxm'")


def test_a_report_carries_the_answer_and_its_notes(answers: dict[str, Result], tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="the report needs the extra 'report'")
    answer = answers["capacity"]
    assert isinstance(answer, hc.CapacityResult)
    answer.report(tmp_path / "r.html")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert f"{answer.users_low:,} users on 1 × {answer.question.gpu.title}" in html
    assert all(note.text in html for note in answer.diagnostics)
    assert "hc.capacity(" in html
    with pytest.raises(ValueError, match=r"report .*r\.doc: the file's name must end in \.csv or \.html"):
        answer.report(tmp_path / "r.doc")


def test_an_unknown_kind_of_report_is_refused_before_anything_is_simulated(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("capacity", *TYPED, "--report", tmp_path / "x.doc")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "x.doc: the file's name must end in .csv or .html" in ran.err


def test_the_public_names_are_listed_and_there() -> None:
    assert dir(hc) == sorted(api.__all__)
    assert all(getattr(hc, name) is api.public(name) for name in dir(hc))
    assert all(getattr(hc, name).__doc__ for name in dir(hc) if callable(getattr(hc, name)))
    with pytest.raises(AttributeError, match="no attribute 'capacitty'"):
        hc.capacitty  # noqa: B018


@pytest.mark.parametrize("ask", [hc.memory, hc.capacity, hc.simulate])
def test_a_misspelt_engine_argument_is_told_with_the_nearest(ask: Callable[..., Result]) -> None:
    with pytest.raises(ValueError, match="no engine argument 'max_num_seq'; did you mean 'max_num_seqs'"):
        ask(*ON, max_num_seq=8)


# Notes


def test_strict_refuses_by_what_a_note_is() -> None:
    with pytest.raises(RefusedError, match="--strict: step times of l4: specifications only"):
        hc.simulate("llama-3.1-8b", "l4", strict=True, max_model_len=2048, **LOAD)
    note = next(note for note in hc.simulate("qwen3-0.6b", "l4", max_model_len=2048, **LOAD).diagnostics if note.remedy)
    assert (note.code, note.severity) == ("step-times-not-measured", hc.Severity.ASSUMPTION)


def test_every_note_says_how_much_it_matters() -> None:
    assert len(diagnostics()) >= 10
    for kind in diagnostics().values():
        assert kind.SEVERITY in hc.Severity
        assert list(kind.find(Facts())) == []


def test_a_limit_on_ttft_within_its_error_is_told() -> None:
    row = CapacityRow(
        gpus=8, tp=8, replicas=1, users=61, users_low=22, users_high=105, users_at_ttft_error_high=30, ttft_error=0.31
    )
    assert row.is_near_ttft_limit
    assert not replace(row, users_at_ttft_error_high=31).is_near_ttft_limit
    assert not replace(row, users_at_ttft_error_high=None).is_near_ttft_limit
    (note,) = find_diagnostics(Facts(near_limit=[("8 GPUs", row)]))
    assert note.code == "ttft-near-limit"
    assert note.text.startswith("8 GPUs: if TTFT is 31% longer than simulated")


def test_a_fleet_that_serves_most_users_only_with_the_larger_kv_cache_says_both_ends() -> None:
    plan = resolve("llama-3.1-8b", "h100-sxm")
    row = CapacityRow(
        gpus=1, tp=1, replicas=1, users=470, users_low=160, users_high=520, plan=plan,
        users_at_kv_cache_low=200, users_at_kv_cache_high=490,
    )  # fmt: skip
    (note,) = find_diagnostics(Facts(near_limit=[("1 GPU", row)]))
    low, high = plan.budget.num_gpu_blocks_low, plan.budget.num_gpu_blocks_high
    assert (note.code, note.severity) == ("kv-cache-near-limit", hc.Severity.WARNING)
    assert f"200 users with {low:,} KV blocks" in note.text and f"490 with {high:,}" in note.text
    for serves in (235, 0, None):  # little is lost; none starts, which the row's reason says; not known
        assert not replace(row, users_at_kv_cache_low=serves).is_near_limit


@pytest.mark.slow
def test_a_longer_limit_on_ttft_takes_that_note_away() -> None:
    def codes(ttft_s: float) -> set[str]:
        found = hc.capacity(
            "llama-3.1-8b", "h100-sxm", gpus=[8], tensor_parallel_size=8, traffic={"context": "24K"}, ttft_s=ttft_s,
            replications=4, precision=0.9, store=False,
        )  # fmt: skip
        return {note.code for note in found.diagnostics}

    assert "ttft-near-limit" in codes(0.75)
    assert "ttft-near-limit" not in codes(2)


def test_a_note_of_one_s_own_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, headcount: Run) -> None:
    (tmp_path / "diagnostics").mkdir()
    (tmp_path / "diagnostics" / "house_rule.py").write_text(
        '"""We buy no such GPU."""\n'
        "from headcount.diagnostics import Severity\n"
        "SEVERITY = Severity.WARNING\n"
        'REMEDY = "take another GPU"\n'
        "def find(facts):\n"
        '    yield "we buy no such GPU", "our own rule"\n'
    )
    monkeypatch.setenv("HEADCOUNT_PATH", str(tmp_path))
    found = hc.memory(*ON)
    assert [note.text for note in found.diagnostics if note.code == "house-rule"] == ["we buy no such GPU"]
    assert headcount("memory", *TYPED).err == "headcount: warning: we buy no such GPU (our own rule)\n"
    strict = headcount("memory", *TYPED, "--strict")
    assert (strict.code, strict.out) == (4, "")
    assert "we buy no such GPU (our own rule); take another GPU" in strict.err


def test_notes_are_found_once_and_frozen() -> None:
    found = find_diagnostics(Facts(terms=[("a", "1", "x"), ("a", "1", "x")]))
    assert [note.to_json()["code"] for note in found] == ["memory-terms"]
    with pytest.raises(AttributeError):
        found[0].text = "other"  # type: ignore[misc]


# The house


def calls_to_print(tree: ast.AST) -> list[int]:
    told = ("print", "echo")
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        call.lineno
        for call in calls
        if (isinstance(call.func, ast.Name) and call.func.id == "print")
        or (isinstance(call.func, ast.Attribute) and call.func.attr in told)
    ]


ONLY_FOR_SEARCHES = {
    "from simulator.study.fleets.layouts import DisaggregationSearch",
    "from simulator.study.fleets.layouts import Offer",
    "from headcount.inputs.reading.variations import values_of",
    "from kvcache.training.plan import TrainingPlan",
}
ONLY_FOR_REPORTS = {
    "from headcount.views.report import document",
    "from headcount.views.report_data.assumptions import gpu_rows, of_terms",
    "from headcount.views.report_data.deployment import deployment_json",
    "from headcount.views.report_data.memory import memory_json",
    "from headcount.views.summary.summary import Summary, risk_of",
    "from headcount.views.summary.summary import LATENCY_WORDS, Summary, money_figures, parts_text, price_figures, "
    "rent_words, risk_of, servers_text",
}


def late_imports(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inside = (node for function in functions for node in ast.walk(function))
    return [ast.unparse(node) for node in inside if isinstance(node, ast.Import | ast.ImportFrom)]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(HOUSE)))
def test_only_the_command_line_and_the_drawing_of_text_print(path: Path) -> None:
    room = path.relative_to(HOUSE).parts[0]
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if room not in ("cli", "views"):
        assert calls_to_print(tree) == []
    if room != "cli":
        late = {"from pandas import json_normalize", "import optuna"}  # where a table is asked for; of an extra
        late |= {"from ipywidgets import SelectionSlider, interactive"}  # in notebooks alone
        late |= {"from jinja2 import Environment, PackageLoader, StrictUndefined", "from weasyprint import HTML"}
        late |= {"from headcount.queries.report_data.study import study_figures"}  # only studies simulate
        late |= {"from simulator.study.running.executor import find_executor"}
        late |= {"from simulator.study.running.simulations import Simulations"}
        late |= {"from simulator.study.store.store import kept_simulations"}
        late |= {"from calibrate.readers.parsing.startup_log import StartupLog"}  # where a log is given
        late |= {"from markupsafe import Markup, escape"}
        late |= {"import resource", "from tokenizers import Tokenizer as Read"}  # not on every system; of an extra
        late |= ONLY_FOR_SEARCHES | ONLY_FOR_REPORTS  # so that one load is simulated sooner
        assert set(late_imports(tree)) <= late


@pytest.mark.parametrize(
    ("gpu", "text"),
    [
        ("h100-sxm", "runs measured"),
        ("rtx-4090", "few runs"),
        ("a100-80gb", "kernels measured"),
        ("l40s", "kernels measured"),
        ("l4", "specifications only"),
    ],
)
def test_what_step_times_rest_on_has_one_name_in_the_table_of_gpus_and_in_notes(gpu: str, text: str) -> None:
    assert measured_text(find_gpu(gpu)) == text
    rows = Path("docs/reference/gpus.md").read_text(encoding="utf-8").splitlines()
    assert f"| {text}" in next(row for row in rows if row.startswith(f"| `{gpu}` |"))
    plan = resolve("qwen2.5-3b", gpu, max_model_len=4096)
    notes = [said for said, _ in step_times_not_measured(Facts(plans=[plan]))]
    assert all(f"step times of {gpu}: {text}" in note for note in notes)
    assert bool(notes) == (text != "runs measured")


def test_steps_with_drafts_have_an_error_of_their_own() -> None:
    drafts = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}
    plain, drafting = resolve("llama-3.1-8b", "h100-sxm"), resolve("llama-3.1-8b", "h100-sxm", speculation=drafts)
    assert [said.split(":")[0] for said, _ in step_time_error(Facts(plans=[plain, drafting, plain]))] == [
        "h100-sxm", "h100-sxm with speculative decoding",
    ]  # fmt: skip
    ((alone, _),) = step_time_error(Facts(plans=[plain, plain]))
    assert alone.startswith("step times are")


def test_the_interval_of_a_p99_says_that_it_is_of_one_run(answers: dict[str, Result]) -> None:
    few = str(answers["simulate"])
    assert "needs 2,000 requests" in few
    assert P99_MEANING not in few
    times = {"latency_model": "constant", "step_s": 0.02}
    many = str(hc.simulate(*ON, input_len=10, output_len=3, concurrency=16, num_requests=2100, **times))
    assert P99_COLUMN in many
    assert P99_MEANING in " ".join(many.split())


def test_runs_are_those_of_their_seeds_and_the_interval_is_over_them() -> None:
    def of(seed: int, runs: int) -> dict[str, Any]:
        answer = hc.simulate(
            "qwen3-0.6b", "h100-sxm", workload="chat", users=20, max_model_len=4096, seed=seed, runs=runs
        )
        return answer.figures()["ttft_s"]

    both = of(3, 2)
    assert both["p99_of_runs"] == pytest.approx([of(3, 1)["p99"], of(4, 1)["p99"]], rel=1e-4)
    assert both["p99_low"] < min(both["p99_of_runs"]) and max(both["p99_of_runs"]) < both["p99_high"]
    assert both["p99"] == of(3, 1)["p99"]


def test_all_latencies_of_several_runs_are_those_of_all_runs_with_their_spread() -> None:
    """No row mixes the first run's p50 to p95 with the p99 of all."""
    load: dict[str, Any] = {"workload": "chat", "users": 20, "max_model_len": 4096}
    both = hc.simulate("qwen3-0.6b", "h100-sxm", **load, seed=3, runs=2)
    alone = [hc.simulate("qwen3-0.6b", "h100-sxm", **load, seed=seed) for seed in (3, 4)]
    rows = [{row["latency"]: row for row in each.rows()} for each in (both, *alone)]
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        for statistic in ("mean", "p50", "p90", "p95", "p99"):
            first, second = (each[name][statistic] for each in rows[1:])
            assert rows[0][name][statistic] == pytest.approx(math.sqrt(first * second), rel=1e-3)
            assert both.spread(name, statistic) == pytest.approx(sorted((first, second)), rel=1e-3)
    text = str(both)
    least, most = both.spread("e2e_s", "p95") or (0.0, 0.0)
    assert f"{latency_text('e2e_s', least)} to {latency_text('e2e_s', most)}" in text
    assert "  runs" not in str(alone[0])
    p95 = rows[0]["ttft_s"]["p95"]
    assert f"begin within {1000 * p95:,.0f} ms" in summary_of(both).answer


def test_a_trace_is_not_run_with_other_seeds() -> None:
    with pytest.raises(ValueError, match="runs is 2; give 1, or with --users or --rate more"):
        hc.simulate("qwen3-0.6b", "h100-sxm", workload="trace.csv", runs=2)
