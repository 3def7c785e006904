"""`headcount optimize`: what gains is found, what does not is left out, and the close ones are run more often."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import headcount as hc
from headcount.queries.optimize import space
from headcount.queries.sweeps.search import leader, race
from simulator.study.candidate import Level
from simulator.study.slo_crossing import SLOCrossing
from simulator.study.statistics import Interval
from simulator.study.variations.variation import FEW_USERS
from tests.headcount.conftest import SHORT_ANSWERS, figures
from tests.headcount.told import head_of

pytestmark = pytest.mark.slow

QUICK: dict[str, Any] = {
    "workload": SHORT_ANSWERS, "latency_model": "constant", "step_s": 0.4, "ttft_s": 5.0, "tpot_s": 1.0, "store": False,
    "max_model_len": 4096, "gpu_memory_utilization": 0.05, "tensor_parallel_size": 1,
    "vllm_version": "0.32.0",  # whose profiling run leaves room for KV in so little memory
}  # fmt: skip
GAINS: dict[str, Any] = {"kv_cache_dtype": ["fp8"], "max_num_seqs": [4, 8], "block_size": [32]}


def asked(**given: Any) -> hc.OptimizeResult:
    return hc.optimize("qwen3-0.6b", "h100-sxm", **{**QUICK, "finalists": 2, **given})


@pytest.fixture(scope="module")
def answer() -> hc.OptimizeResult:
    return asked(search=GAINS)


def test_the_one_change_that_gains_is_found_alone(answer: hc.OptimizeResult) -> None:
    assert answer.best.choice == {"kv_cache_dtype": "fp8"}
    assert answer.gain is not None
    assert answer.gain.low > 1
    assert "--kv-cache-dtype fp8" in answer.serve_line
    assert "test their quality" in str(answer)
    assert answer.num_looked_at == 2 * 3 * 2


def test_the_gain_is_the_ratio_to_the_arguments_as_given(answer: hc.OptimizeResult) -> None:
    assert answer.base.name == "unchanged"
    assert answer.best.row is not None
    assert answer.base.row is not None
    assert answer.gain is not None
    assert answer.best.row.evidence == answer.base.row.evidence == "confirmed"
    assert answer.gain.mean == pytest.approx(answer.best.users / answer.base.users)


def test_nothing_beside_the_frontier_is_better_than_it_in_all(answer: hc.OptimizeResult) -> None:
    assert answer.best in answer.frontier
    for each in answer.frontier:
        for other in answer.compared.layouts:
            if other.row and other.row.users and each is not answer.best:
                better = other.users > 1.01 * each.users
                better &= (other.p95_s("ttft_s") or 0) * 1.01 < (each.p95_s("ttft_s") or 0)
                assert not (better and (other.p95_s("tpot_s") or 0) * 1.01 < (each.p95_s("tpot_s") or 0))


def test_where_nothing_gains_the_arguments_stay_as_given() -> None:
    worse = asked(search={"max_num_seqs": [4]})
    assert worse.best is worse.base
    said = " ".join(str(worse).split())
    assert "2 candidates (with each default) screened and 1 simulated, none clearly raises the users by" in said
    assert worse.serve_line
    assert worse.serve_line in said
    *_, settings, line = map(str, head_of(worse))
    assert line == worse.serve_line
    assert settings.startswith("unchanged: vLLM")
    assert "4 sequences" in settings or "2 sequences" in settings
    assert said.count("unchanged: vLLM") == 1
    (value,) = worse.held.values()
    assert f"keep max_num_seqs {value:,}: {worse.base.users} users at 95 % confidence." in said
    assert worse.gain == Interval(1.0, 1.0, 1.0)


def test_a_searched_value_that_is_the_default_is_no_layout_of_its_own(answer: hc.OptimizeResult) -> None:
    defaults = {"block_size": [16], "enable_prefix_caching": [True], "max_num_batched_tokens": [8192]}
    found = asked(search={**defaults, "max_num_seqs": [4]})
    assert [each.name for each in found.compared.layouts] == ["unchanged", "max_num_seqs 4"]
    base, few = found.base, found.compared.layouts[1]
    assert few.row is not None and few.row.users_low < FEW_USERS and not few.is_coarse, "few users are confirmed"
    assert base.row is not None and base.row.coarse is not None
    again = replace(base, row=replace(base.row.coarse, users_low=base.users + 9))
    ratio = replace(again, row=base.row.coarse).users_over(base)
    assert ratio is not None and ratio.low < 1 < ratio.high, "few replications of one layout are that layout"
    compared = replace(found.compared, layouts=(base, replace(again, row=replace(base.row.coarse, users_low=999))))
    frontier = str(replace(found, compared=compared)).partition("layout ")[0]
    assert "≈ 999" in frontier
    assert "≈: from few replications" in str(replace(found, compared=compared, explain=False))


def test_a_layout_with_more_users_than_the_best_says_why_it_is_not_the_best(answer: hc.OptimizeResult) -> None:
    """Made up: the best with a layout of one user more, the same in every replication but for noise."""
    best = answer.best
    assert best.row is not None
    more = replace(best, choice={**best.choice, "block_size": 32}, row=replace(best.row, users_low=best.users + 1))
    close = replace(answer, compared=replace(answer.compared, layouts=(best, more)))
    assert close.gain_is_close(more)
    assert not close.gain_is_close(best)
    said = " ".join(str(close).split())
    assert f"{more.name}: {more.users:,} users are not clearly 2 % more than the best's {best.users:,} (" in said


def test_one_seed_gives_one_answer_though_the_optimizer_draws() -> None:
    pytest.importorskip("optuna")
    few = {"search": GAINS, "trials": 5, "seed": 3}
    first = asked(**few)
    assert first.num_looked_at <= 5
    assert asked(**few).to_json() == first.to_json()


def test_without_the_optimizer_every_choice_is_looked_at_or_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ValueError, match=r"5 of 12 choices .* install headcount\[optimize\]"):
        asked(search=GAINS, trials=5)


def test_routers_are_tried_where_there_are_several_servers() -> None:
    assert [each.name for each in asked(search={"router": ["random"]}).compared.layouts] == ["unchanged"]
    two = asked(search={"router": ["random"]}, gpus=2, max_num_seqs=4)
    assert {each.name for each in two.compared.layouts} == {"unchanged", "random"}
    assert two.best.name == "unchanged"


def test_what_is_given_is_not_searched() -> None:
    assert [axis.name for axis in space(None, {"max_num_seqs": 8, "router": "random"})] == [
        "max_num_batched_tokens", "kv_cache_dtype", "quantization", "gpu_memory_utilization",
    ]  # fmt: skip


def test_sglang_s_own_arguments_are_searched() -> None:
    """Policies and conservativeness, which no estimate knows, are simulated on top of the best by their estimates."""
    sglang = {
        **QUICK, "engine": "sglang", "context_length": 4096, "mem_fraction_static": 0.05, "max_model_len": None,
        "gpu_memory_utilization": None, "vllm_version": None, "finalists": 2,
    }  # fmt: skip
    axes = [axis.name for axis in space(None, {"engine": "sglang", "chunked_prefill_size": 4096})]
    assert axes[:3] == ["max_running_requests", "enable_mixed_chunk", "kv_cache_dtype"]
    assert axes[-2:] == ["schedule_policy", "schedule_conservativeness"]
    search = {"kv_cache_dtype": ["fp8_e4m3"], "max_running_requests": [4], "schedule_conservativeness": [0.3]}
    found = hc.optimize("qwen3-0.6b", "h100-sxm", **sglang, search=search)
    assert found.num_looked_at == 2 * 2
    assert {"schedule_conservativeness": 0.3} in [each.choice for each in found.compared.layouts]
    assert found.best.users >= found.base.users > 0
    assert found.serve_line.startswith("python -m sglang.launch_server --model-path Qwen/Qwen3-0.6B")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"search": {"max_num_seqs": [8]}, "max_num_seqs": 4}, "max_num_seqs is given and searched"),
        ({"search": {"context": ["x2"]}}, "no argument to search 'context'"),
        ({"search": {"router": ["round-robbin"]}}, "round-robbin"),
        ({"search": {"max_num_seqs": []}}, "max_num_seqs is an empty list"),
        ({"search": {"page_size": [16]}}, "--page-size is an argument of SGLang; vLLM has --block-size"),
        ({"trials": 0}, "trials is 0"),
        ({"finalists": 101}, "finalists is 101"),
        ({"gpus": 0}, "gpus has 0"),
        ({"max_nm_seqs": 3}, "max_nm_seqs"),
    ],
    ids=str,
)
def test_what_is_not_known_is_told_at_once(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        asked(**given)


@dataclass(eq=False)
class Racer:
    """A layout whose capacity is known, with noise of its own in every replication."""

    name: str
    log_users: float
    ran: tuple[Level, ...] = ()

    @property
    def row(self) -> Any:
        if not self.ran:
            return None
        users = 1000 * np.exp(self.log_users)
        return SimpleNamespace(users=users, users_low=0.9 * users, evidence=self.ran[-1].word)

    def users_over(self, other: "Racer") -> Interval:
        return _knee(self).over(_knee(other))


def _knee(racer: Racer) -> SLOCrossing:
    noise = 0.02 * np.random.default_rng(sum(map(ord, racer.name))).standard_normal(48)
    count = 12 if racer.ran[-1] is Level.COARSE else 48
    return SLOCrossing(log_size=racer.log_users, log_sizes=racer.log_users + noise[:count])


def test_the_close_ones_and_the_base_are_confirmed_those_clearly_behind_are_not() -> None:
    racers: list[Any] = [Racer("base", 0.0), Racer("a", 0.40), Racer("b", 0.395), Racer("c", 0.1)]

    def simulate(layout: Any, level: Level) -> Any:
        return Racer(layout.name, layout.log_users, (*layout.ran, level))

    field: list[Any] = race(racers[0], racers[1:], simulate)
    runs = {each.name: each.ran for each in field}
    assert runs["c"] == (Level.COARSE,)
    assert runs["base"] == runs["a"] == runs["b"] == (Level.COARSE, Level.CONFIRMED)
    assert leader(field).name == "a"


def test_who_surely_gains_leads_though_another_that_may_not_has_more_users() -> None:
    sure, noisy = Racer("sure", 0.05, (Level.CONFIRMED,)), Racer("noisy", 0.08, (Level.CONFIRMED,))
    base = Racer("base", 0.0, (Level.CONFIRMED,))
    unsure = Interval(1.08, 0.97, 1.2)
    noisy.users_over = lambda other: unsure  # type: ignore[method-assign]
    field: list[Any] = [base, noisy, sure]
    assert leader(field) is sure


def test_the_command_answers_as_python_does(
    headcount: Callable[..., Any], answer: hc.OptimizeResult, tmp_path: Path
) -> None:
    report = tmp_path / "optimize.html"
    ran = headcount(
        "optimize", "--model", "qwen3-0.6b", "--gpu", "h100-sxm", "--search", "kv-cache-dtype=fp8", "--search",
        "max-num-seqs=4,8", "--search", "block-size=32", "--finalists", "2", "--workload", SHORT_ANSWERS,
        "--latency-model", "constant", "--step-s", "0.4", "--ttft", "5s", "--tpot", "1s", "--no-store",
        "--max-model-len", "4096", "--gpu-memory-utilization", "0.05", "-tp", "1",
        "--vllm-version", QUICK["vllm_version"], "--json", "--report", report,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert figures(ran.out) == json.loads(json.dumps(answer.to_json()))
    page = report.read_text(encoding="utf-8")
    assert answer.serve_line in page
    assert "headcount optimize --model qwen3-0.6b" in page


def test_an_unknown_engine_is_one_clear_error() -> None:
    with pytest.raises(hc.HeadcountError, match="no engine 'physical'; known: sglang, vllm"):
        hc.optimize("llama-3.1-8b", "h100-sxm", engine="physical")
