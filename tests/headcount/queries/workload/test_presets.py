"""`headcount workload`: the presets and populations in figures, with their sources."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.headcount.conftest import SHORT_ANSWERS
from workloads.load import load_preset, preset_names

SUPPORT_DESK = Path(__file__).parents[4] / "examples" / "mine" / "presets" / "support-desk.toml"
Run = Callable[..., Any]


def test_every_preset_is_listed_with_its_means(headcount: Run) -> None:
    ran = headcount("workload", "list")
    assert [line.split()[0] for line in ran.out.splitlines()[1:]] == list(preset_names())
    chat = next(line for line in ran.out.splitlines() if line.startswith("chat"))
    assert chat.split()[-5:] == ["84", "s", "2.5", "3,623", "441"]
    found = json.loads(headcount("workload", "list", "--json").out)["workloads"]
    assert [each["name"] for each in found] == list(preset_names())
    assert all(each["mean_context_tokens"] > each["mean_output_tokens"] > 0 for each in found)


@pytest.mark.parametrize("name", preset_names())
def test_every_part_is_shown_with_its_source(headcount: Run, name: str) -> None:
    found = json.loads(headcount("workload", "show", name, "--json").out)
    assert found["name"] == name
    assert found["mean_think_time_s"] == load_preset(name).think_time_s.mean()
    text = headcount("workload", "show", name).out
    for part in found["parts"]:
        assert part["source"] and part["source"] in text
        assert part["p50"] <= part["p95"]


def test_a_file_is_shown_as_a_preset_is(headcount: Run) -> None:
    out = headcount("workload", "show", SUPPORT_DESK).out
    assert out.startswith("support-desk: support desk: long system prompt, short questions\n")
    assert "lognormal, median 3, sigma 0.6, maximum 20" in out


def test_a_trace_and_an_unknown_name_are_told(headcount: Run, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
    ran = headcount("workload", "show", trace)
    assert (ran.code, ran.out) == (2, "")
    assert "is a trace (azure); show takes a preset or a population's TOML file" in ran.err
    assert "did you mean 'chat'?" in headcount("workload", "show", "chatt").err


FEW = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--workload", SHORT_ANSWERS)


def served(headcount: Run, *more: str) -> dict[str, Any]:
    return dict(json.loads(headcount("simulate", *FEW, "--users", 5, "--json", *more).out))


def test_traffic_changes_the_workload_of_a_simulation(headcount: Run) -> None:
    as_it_is, with_prompt = served(headcount), served(headcount, "--traffic", "system-prompt=4K")
    assert with_prompt["ttft_s"]["mean"] > as_it_is["ttft_s"]["mean"]
    same = served(headcount, "--traffic", "context=x1,output=x1,turns=x1")
    assert same["ttft_s"] == as_it_is["ttft_s"]


def test_scales_turns_and_a_system_prompt_are_changes_of_traffic(headcount: Run) -> None:
    options = ("--context-scale", 2, "--output-scale", 1.5, "--turns", 4, "--system-prompt", "4K")
    same = "context=x2,output=x1.5,turns=4,system-prompt=4K"
    assert served(headcount, *options)["ttft_s"] == served(headcount, "--traffic", same)["ttft_s"]
    described = [
        headcount("workload", "describe", SHORT_ANSWERS, "--users", 5, *how).out
        for how in (options, ("--traffic", same))
    ]
    assert described[0] == described[1] != headcount("workload", "describe", SHORT_ANSWERS, "--users", 5).out


@pytest.mark.slow
def test_traffic_is_named_beside_its_workload(headcount: Run) -> None:
    search = ("--gpus", 1, "--replications", 2, "--json", "--traffic", "output=x2")
    found = json.loads(headcount("capacity", *FEW, *search).out)
    assert found["workload"] == f"{SHORT_ANSWERS}, output x2"


def test_what_is_no_traffic_is_told(headcount: Run) -> None:
    ran = headcount("capacity", *FEW, "--traffic", "contxt=x2")
    assert (ran.code, "no change of traffic 'contxt'; did you mean 'context'?" in ran.err) == (2, True)
    ran = headcount(
        "simulate", *FEW[:4], "--concurrency", 1, "--input-len", 5, "--output-len", 5, "--traffic", "turns=2"
    )
    assert (ran.code, "turns cannot be changed with --concurrency" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["capacity", "compare", "optimize", "plan", "simulate", "whatif"])
def test_every_study_takes_traffic(headcount: Run, command: str) -> None:
    assert "--traffic" in headcount(command, "--help").out
