"""`headcount workload describe`: figures, text and a page."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headcount as hc
from tests.workloads.trace_files import AZURE, mooncake, write, write_lines

Run = Callable[..., Any]


def test_a_trace_without_sessions_says_what_it_does_not_tell(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("workload", "describe", write(tmp_path, "conv.csv", AZURE))
    assert ran.code == 0
    assert ran.out.startswith("conv.csv: 3 requests in 60.10 s, azure format\n")
    for untold in ("The time of day", "Sessions", "Think times", "Content", "The tail"):
        assert f"  {untold}: " in ran.out
    assert "Prefix cache" not in ran.out


def test_json_has_every_figure(headcount: Run, tmp_path: Path) -> None:
    lines = [mooncake(1000 * at, 1024, 9, [1, at // 2]) for at in range(200)]
    ran = headcount("workload", "describe", write_lines(tmp_path, *lines), "--json", "--kv-cache-tokens", "512,2k,1M")
    found = json.loads(ran.out)
    assert found["num_requests"] == 200
    assert found["arrivals"]["requests_per_s"] == 1
    assert [window["window_s"] for window in found["arrivals"]["windows"]] == [1, 10, 60]
    assert found["prompt_tokens"]["p99"] == 1024
    assert found["prefix_reuse"]["ideal_hit_rate"] == (199 + 100) / 400
    caches = {cache["kv_cache_tokens"]: cache["hit_rate"] for cache in found["prefix_reuse"]["caches"]}
    assert caches == {512: 199 / 400, 2000: 299 / 400, 1_000_000: 299 / 400}
    assert found["sessions"] is None


def test_a_preset_is_drawn_and_its_exact_means_stand_beside(headcount: Run) -> None:
    found = json.loads(headcount("workload", "describe", "chat", "--users", 50, "--json").out)
    assert (found["num_users"], found["num_requests"], found["arrivals"]) == (50, 1000, None)
    assert found["exact_means"]["think_time_s"] == hc.load_workload("chat").think_time_s.mean()
    assert "exact means: turns 2.54" in headcount("workload", "describe", "chat", "--users", 50).out


def test_the_page_holds_the_charts_and_the_figures(headcount: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    lines = [mooncake(1000 * at, 1024, 9, [1, at // 2]) for at in range(200)]
    assert headcount("workload", "describe", write_lines(tmp_path, *lines), "--report", page).code == 0
    text = page.read_text()
    assert text.count("<svg") == 3
    assert "Limits of this answer" in text
    assert "headcount workload describe" in text


def test_one_request_is_described(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("workload", "describe", write_lines(tmp_path, mooncake(0, 5, 1)), "--report", tmp_path / "p.html")
    assert (ran.code, ran.err) == (0, "")
    assert "1 requests without times" not in ran.out


def test_sizes_are_refused_in_words(headcount: Run) -> None:
    ran = headcount("workload", "describe", "chat", "--kv-cache-tokens", "0")
    assert (ran.code, ran.out) == (2, "")
    assert "'0' is not a whole number above 0" in ran.err
