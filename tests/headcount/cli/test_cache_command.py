"""`headcount cache`, and what `capacity` keeps."""

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from files import outputs
from files.cache import row_store
from simulator.study import replication
from simulator.study.store.store import kept_simulations
from tests.headcount.conftest import SHORT_ANSWERS

Run = Callable[..., Any]
ASKED = ("capacity", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--gpus", 1, "--max-num-seqs", 2, "--replications",
         2, "--workload", SHORT_ANSWERS, "--latency-model", "constant", "--step-s", 0.02)  # fmt: skip


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (outputs, row_store):
        monkeypatch.setattr(module, "cache_folder", lambda: tmp_path)
    (tmp_path / "kernels").mkdir(mode=0o700)
    (tmp_path / "kernels" / "one.kernel").write_bytes(bytes(3_000_000))
    return tmp_path


def test_an_empty_cache_is_told_and_cleared(headcount: Run, cache: Path) -> None:
    ran = headcount("cache", "info")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"{cache}\nsimulations  0, 0.0 MB\nanswers      0, 0.0 MB\nkernels      3.0 MB\n"
    assert headcount("cache", "clear").out == f"0.0 MB freed in {cache}\n"
    assert not (cache / "simulations").exists()


def test_clear_leaves_the_kernels_unless_asked(headcount: Run, cache: Path) -> None:
    headcount("cache", "clear")
    assert (cache / "kernels").exists()
    assert headcount("cache", "clear", "--kernels").out == f"3.0 MB freed in {cache}\n"
    assert not (cache / "kernels").exists()


def test_a_locked_store_is_not_cleared(headcount: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_store, "BUSY_S", 0.01)
    kept = kept_simulations(cache)
    kept.count()  # makes the file
    kept.close()
    with sqlite3.connect(kept.path, isolation_level=None) as other:
        other.execute("begin exclusive")
        ran = headcount("cache", "clear")
    assert ran.code == 2
    assert "finished simulations were not deleted; end the program that uses them, then try again" in ran.err


def test_clear_deletes_a_damaged_store(headcount: Run, cache: Path) -> None:
    kept = kept_simulations(cache)
    kept.count()
    kept.close()
    kept.damaged.write_bytes(bytes(2_000_000))
    headcount("cache", "clear")
    assert not kept.damaged.exists()


@pytest.mark.slow
def test_a_repeated_question_simulates_nothing(headcount: Run, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    simulated: list[object] = []
    really = replication._to_horizon

    def counted(*given: Any, **named: Any) -> Any:
        simulated.append(given)
        return really(*given, **named)

    monkeypatch.setattr(replication, "_to_horizon", counted)
    first = headcount(*ASKED, "--json")
    info = json.loads(headcount("cache", "info", "--json").out)
    assert info["schema_version"] == 2
    assert info["simulations"] == len(simulated) > 0
    assert info["simulations_bytes"] > 10_000

    def none(*_: Any, **__: Any) -> None:
        raise AssertionError("it is simulated again")

    monkeypatch.setattr(replication, "_to_horizon", none)
    assert headcount(*ASKED, "--json").out == first.out
    assert headcount(*ASKED, "--report", cache / "report.json").code == 0  # no answer is kept of it, simulations are
    assert headcount(*ASKED, "--no-store").code == 70
    headcount("cache", "clear")
    assert json.loads(headcount("cache", "info", "--json").out)["simulations"] == 0
    assert headcount(*ASKED).code == 70


@pytest.mark.parametrize(("given", "told"), [
    ({"executor": "thread"}, "no executor 'thread'; did you mean 'threads'"),
    ({"workers": 0}, "workers is 0; give at least 1"),
])  # fmt: skip
def test_a_wrong_executor_is_refused_before_any_work(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        hc.capacity("llama-3.1-8b", "h100-sxm", **given)
