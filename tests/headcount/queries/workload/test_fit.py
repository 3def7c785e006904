"""`headcount workload fit`: a model that stands in for its trace in every command."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.trace_files import AZURE, load_trace, mooncake, write, write_lines

Run = Callable[..., Any]


def recorded(folder: Path, n: int = 300) -> Path:
    lines = [mooncake(700 * at + at % 7, 600 + at % 11, 5 + at % 3, [at % 40, 1000 + at]) for at in range(n)]
    return write_lines(folder, *lines)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from headcount.queries.workloads.fit import fit_trace  # noqa: PLC0415

    folder = tmp_path_factory.mktemp("fit")
    fit_trace(recorded(folder), folder / "model.toml")
    return folder / "model.toml"


@pytest.mark.slow
def test_a_fit_shows_the_model_beside_the_trace(headcount: Run, tmp_path: Path) -> None:
    out = tmp_path / "model.toml"
    found = json.loads(headcount("workload", "fit", recorded(tmp_path), out, "--json").out)
    assert found["num_bytes"] == len(out.read_bytes())
    assert found["distances"]["prompt tokens"]["ks"] < 0.1
    assert [each["window_s"] for each in found["variance_over_mean"]] == [1, 10, 60]
    assert found["hit_rates"][-1]["kv_cache_tokens"] is None
    assert found["not_held"]
    assert sum(found["kinds"].values()) == pytest.approx(1, abs=1e-5)


def test_the_text_says_what_the_model_does_not_hold(headcount: Run, tmp_path: Path) -> None:
    ran = headcount("workload", "fit", recorded(tmp_path), tmp_path / "model.toml")
    assert ran.code == 0
    for part in ("a model of its 300 requests", "trace / model", "Bursts", "Prefix cache, LRU", "does not hold"):
        assert part in ran.out


def test_a_model_is_described_shown_and_generated_from(headcount: Run, model: Path, tmp_path: Path) -> None:
    assert headcount("workload", "describe", model).out.startswith("model.toml: 300 requests in 3.5 min, fitted format")
    shown = headcount("workload", "show", model).out
    assert "fitted to trace.jsonl: 300 requests, mooncake format" in shown
    assert "new tokens" in shown
    assert json.loads(headcount("workload", "show", model, "--json").out)["num_requests"] == 300
    out = tmp_path / "drawn.jsonl"
    assert headcount("workload", "generate", model, out, "--num-requests", 500, "--seed", 4).code == 0
    assert load_trace(out).num_requests == 500


def test_a_rate_replaces_the_model_s_arrivals(headcount: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "drawn.csv"
    headcount("workload", "generate", model, out, "--rate", 100, "--num-requests", 400)
    assert load_trace(out).requests_per_s == pytest.approx(100, rel=0.2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--users", 5, "--duration", "1h"), "--users and --duration go with a population; a fitted trace has"),
        (("--arrivals", "poisson"), "--arrivals needs --rate"),
        (("--max-model-len", 4000), "--max-model-len goes with a population"),
    ],
)
def test_what_a_model_does_not_take_is_refused(
    headcount: Run, model: Path, tmp_path: Path, options: tuple[Any, ...], message: str
) -> None:
    ran = headcount("workload", "generate", model, tmp_path / "o.csv", *options)
    assert (ran.code, (tmp_path / "o.csv").exists()) == (2, False)
    assert message in ran.err


def test_nothing_is_written_where_nothing_can_be_fitted(headcount: Run, model: Path, tmp_path: Path) -> None:
    out = tmp_path / "o.toml"
    for given, message in (
        (write(tmp_path, "a.csv", AZURE), "has 3 requests; a fit needs at least 100"),
        (model, "is a model already; give a trace"),
        (tmp_path / "none.csv", "none.csv"),
    ):
        ran = headcount("workload", "fit", given, out)
        assert (ran.code, out.exists()) == (2, False)
        assert message in ran.err
    assert headcount("workload", "fit", recorded(tmp_path), tmp_path / "o.csv").code == 2
