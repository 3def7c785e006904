"""`headcount calibrate fit`, `headcount calibrate check`, `--latency-profile`."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibrate.check.replay import replay
from calibrate.fit.inputs import read_inputs
from calibrate.measured_run import MeasuredRun
from calibrate.recording import Recording
from kvcache.models.catalog import find_gpu
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import LogError
from simulator.latency.profile import LatencyProfile, Term, digest_of, with_terms
from simulator.latency.profile_file import profile_text, read_profile
from tests.calibrate.recorded import closed_run, measured_closed_run, recording
from tests.headcount.inputs.test_startup_log_option import LOG
from validation.recorded_steps import FOLDER

DEPLOYMENT = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--max-num-seqs", 128, "--max-num-batched-tokens", 2048)
LOAD = ("--concurrency", 4, "--input-len", 128, "--output-len", 8)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Path]:
    """A folder whose files hold these runs or recordings, whatever is in them."""
    held: dict[str, Any] = {}

    def read(path: Path, _: str | None) -> list[Any]:
        return [held[path.name]]

    monkeypatch.setattr("calibrate.fit.inputs.read_file", read)

    def make(*items: MeasuredRun | Recording) -> Path:
        folder = tmp_path / "files"
        folder.mkdir()
        for number, item in enumerate(items):
            held[f"{number}.json"] = item
            (folder / f"{number}.json").write_text(f"{number}")
        return folder

    return make


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """Of an H100 whose memory is slower than is shipped."""
    base, error = constants_for(find_gpu("h100-sxm")), LogError(deployment=0.02, residual=0.03)
    made = LatencyProfile(
        name="slow", gpu="h100-sxm", base=base.name, base_digest=digest_of(base), source="made up",
        terms=(Term(name="gemm_bandwidth_share", prior_mean=0.0, prior_sd=0.2, mean=-0.3),),
        covariance=np.array([[1e-4]]), tpot_log_error=error, ttft_log_error=error,
        settings={"tensor_parallel_size": 1},
    )  # fmt: skip
    path = tmp_path / "slow.toml"
    path.write_text(profile_text(made), encoding="utf-8")
    return path


@pytest.mark.slow
def test_steps_become_a_profile_that_changes_the_answer(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    profile = tmp_path / "slow.toml"
    folder = files(recording({"gemm_bandwidth_share": -0.3}, count=120))
    ran = headcount("calibrate", "fit", folder, *DEPLOYMENT, "--out", profile, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert found["held_out"]["decode_mean_percent"] < 5 < found["before"]["decode_mean_percent"]
    command = ("simulate", *DEPLOYMENT, *LOAD, "--json")
    shipped, fitted = (json.loads(headcount(*command, *more).out) for more in ((), ("--latency-profile", profile)))
    assert fitted["tpot_s"]["mean"] > 1.15 * shipped["tpot_s"]["mean"]
    assert read_profile(profile).name == "slow"


def test_the_answer_says_that_it_rests_on_the_profile_and_where_it_leaves_it(
    headcount: Callable[..., Any], profile: Path
) -> None:
    ran = headcount("simulate", *DEPLOYMENT, *LOAD, "--latency-profile", profile, "-tp", 2)
    assert ran.code == 0
    assert "step times from your latency profile" in ran.out
    assert "warning: tensor_parallel_size 2 is outside the latency profile, which was fitted at 1" in ran.err
    strict = headcount("simulate", *DEPLOYMENT, *LOAD, "--latency-profile", profile, "-tp", 2, "--strict")
    assert (strict.code, strict.out) == (4, "")
    assert "tensor_parallel_size 2 is outside" in strict.err
    inside = headcount("simulate", *DEPLOYMENT, *LOAD, "--latency-profile", profile, "--strict")
    assert (inside.code, inside.err) == (0, "")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--latency-profile", "none.toml"), "none.toml cannot be read"),
        (("--latency-model", "constant"), "needs --latency-model physical"),
        (("--gpu", "h200-sxm"), "is of h100-sxm, not h200-sxm"),
    ],
)
def test_a_profile_that_does_not_apply_is_told(
    headcount: Callable[..., Any], profile: Path, more: tuple[str, ...], told: str
) -> None:
    ran = headcount("simulate", *DEPLOYMENT, *LOAD, "--latency-profile", profile, *more)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err


def test_a_check_lays_each_figure_beside(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    failed = closed_run(2, aggregates={"ttft_s.mean": 1.0}, excluded={"failed": 3})
    folder = files(measured_closed_run(4, {}), measured_closed_run(16, {}), failed)
    page = tmp_path / "check.html"
    ran = headcount("calibrate", "check", folder, *DEPLOYMENT, "--report", page, "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert [run["overloaded"] for run in found["runs"]] == [False, False, True]
    assert found["runs"][0]["figures"]["tpot_s.mean"]["error_percent"] == pytest.approx(0, abs=1e-6)
    assert found["summary"]["ttft_s.mean"]["runs"] == 2
    assert found["diagnosis"]["as_it_should_be"]
    text = page.read_text(encoding="utf-8")
    assert "<svg" in text
    assert "overloaded, 3 of 6 requests failed" in text


METRICS = Path(__file__).parents[4] / "examples" / "metrics"
BETWEEN = (METRICS / "after.txt", "--before", METRICS / "before.txt")


@pytest.mark.parametrize(("told", "rate"), [(("--duration", "5min"), 8.0), (("--rate", 8), 8.0)])
def test_two_snapshots_of_metrics_are_checked_once_their_load_is_told(
    headcount: Callable[..., Any], told: tuple[Any, ...], rate: float
) -> None:
    """2,400 requests in 300 s, from a server whose steps take 8 % longer."""
    ran = headcount("calibrate", "check", *BETWEEN, *told, *DEPLOYMENT[:4], "--max-model-len", "16K", "--json")
    assert ran.code == 0, ran.err
    (run,) = (found := json.loads(ran.out))["runs"]
    assert (run["load"]["rate"], run["load"]["num_requests"]) == (rate, 2400)
    assert run["figures"]["itl_s.mean"]["error_percent"] == pytest.approx(-8, abs=1)
    explained = found["diagnosis"]["explanations"]
    assert "steps that take" in explained[0]["what"] and found["diagnosis"]["settings_tried"] > 10


def test_metrics_without_a_load_are_told_what_gives_it(headcount: Callable[..., Any], tmp_path: Path) -> None:
    known = (*DEPLOYMENT[:4], "--max-model-len", "16K")
    for command in (("check",), ("fit", "--out", tmp_path / "p.toml")):
        ran = headcount("calibrate", command[0], *BETWEEN, *command[1:], *known)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        for way in ("--rate", "--concurrency", "--duration", "calibrate record --url"):
            assert way in ran.err
    ran = headcount("calibrate", "check", *BETWEEN, *known, "--rate", 2, "--concurrency", 3)
    assert "--rate, --concurrency and --duration each tell the load; give one" in ran.err
    ran = headcount("calibrate", "fit", *BETWEEN, *known, "--rate", 8, "--out", METRICS / "before.txt")
    assert ran.code == 2 and "before.txt" in ran.err


@pytest.mark.slow
def test_metrics_are_fitted(headcount: Callable[..., Any], tmp_path: Path) -> None:
    profile = tmp_path / "p.toml"
    known = (*DEPLOYMENT[:4], "--max-model-len", "16K", "--duration", "5min")
    assert headcount("calibrate", "fit", *BETWEEN, *known, "--out", profile).code == 0
    ran = headcount("calibrate", "check", *BETWEEN, *known, "--latency-profile", profile, "--json")
    figures = json.loads(ran.out)["runs"][0]["figures"]
    assert abs(figures["itl_s.mean"]["error_percent"]) < 2


def test_runs_of_sglang_go_through_sglang_s_scheduler(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    """As the file says, or `--engine`: prompts go first, so that under vLLM the same load has other latencies."""
    options = {"engine": "sglang", "model": "llama-3.1-8b", "gpu": "h100-sxm", "chunked_prefill_size": 2048}
    asked = replace(closed_run(32), options=options)
    times = replay(asked).simulate().times
    means = {"ttft_s.mean": float(times.ttft_s.mean()), "tpot_s.mean": float(np.nanmean(times.tpot_s))}
    folder = files(replace(asked, aggregates=means))
    errors = {}
    for engine in ((), ("--engine", "sglang"), ("--engine", "vllm")):
        ran = headcount("calibrate", "check", folder, *DEPLOYMENT[:4], *engine, "--json")
        assert ran.code == 0, ran.err
        figures = json.loads(ran.out)["runs"][0]["figures"]
        errors[engine[-1:]] = [abs(figures[name]["error_percent"]) for name in means]
    assert max(errors[()] + errors[("sglang",)]) == pytest.approx(0, abs=1e-6)
    assert max(errors[("vllm",)]) > 1
    ran = headcount("calibrate", "check", folder, *DEPLOYMENT[:4], "--max-num-seqs", "8")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "SGLang has --max-running-requests" in ran.err


@pytest.mark.slow
def test_runs_of_sglang_become_a_profile_of_sglang_s_steps(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    """Runs of a server whose memory is slower: the fit finds it through SGLang's scheduler."""
    options = {"engine": "sglang", "model": "llama-3.1-8b", "gpu": "h100-sxm", "chunked_prefill_size": 2048}
    slow = with_terms(constants_for(find_gpu("h100-sxm")), {"gemm_bandwidth_share": -0.3})
    runs = []
    for concurrency in (1, 4, 16):
        asked = replace(closed_run(concurrency), options=options)
        times = replay(asked).simulate(slow).times
        means = {"ttft_s.mean": float(times.ttft_s.mean()), "tpot_s.mean": float(np.nanmean(times.tpot_s))}
        runs.append(replace(asked, aggregates=means))
    out = tmp_path / "sglang.toml"
    ran = headcount("calibrate", "fit", files(*runs), *DEPLOYMENT[:4], "--out", out, "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["own_data"]["tpot_median_percent"] < 3
    answer = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "sglang", *LOAD, "--json")
    before, after = (json.loads(headcount("simulate", *answer, *more).out) for more in ((), ("--latency-profile", out)))
    assert after["tpot_s"]["mean"] > 1.1 * before["tpot_s"]["mean"]
    assert read_profile(out).settings["engine"] == "sglang"
    assert read_profile(out).data["sglang_version"] == ["0.5.23"]
    ran = headcount("simulate", *answer[:4], *LOAD, "--latency-profile", out)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "is of SGLang's steps, not vLLM's; leave it out" in ran.err


def test_a_recording_names_its_own_model_and_gpu(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    """Another name of the same model is no other model."""
    (recorded,) = read_inputs([FOLDER]).recordings
    folder, found = files(replace(recorded, steps=recorded.steps[::4])), []
    for number, given in enumerate([(), ("--model", "meta-llama/Llama-3.1-8B-Instruct")]):
        out = tmp_path / f"{number}.toml"
        ran = headcount("calibrate", "fit", folder, *given, "--name", "h200", "--out", out)
        assert ran.code == 0, ran.err
        found.append(out.read_text(encoding="utf-8"))
    assert found[0] == found[1]
    assert "h200-sxm" in found[0]


def test_files_that_name_no_gpu_are_told(headcount: Callable[..., Any], files: Callable[..., Path]) -> None:
    folder = files(replace(closed_run(4), options={"model": "llama-3.1-8b"}))
    ran = headcount("calibrate", "check", folder)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "does not name its gpu; give --gpu" in ran.err


def test_a_start_up_log_alone_does_not_say_on_which_gpu(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text(LOG, encoding="utf-8")
    ran = headcount("calibrate", "check", files(closed_run(4)), "--startup-log", log)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "--startup-log needs --gpu" in ran.err


def test_a_check_lays_recorded_steps_beside_simulated_ones(headcount: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "check.html"
    ran = headcount("calibrate", "check", FOLDER, "--report", page)
    assert ran.code == 0, ran.err
    assert "meta-llama/Llama-3.1-8B-Instruct on h200-sxm: 284 recorded steps" in ran.out
    assert "verdict: decode steps are as fast as expected for h200-sxm" in ran.out
    assert "decode-16384x8" in page.read_text(encoding="utf-8")
    found = json.loads(headcount("calibrate", "check", FOLDER, "--json").out)["recordings"]
    assert [(each["steps"], each["as_it_should_be"]) for each in found] == [(284, True)]
    row = next(row for row in found[0]["rows"] if (row["load"], row.get("sequences")) == ("decode-1024x128", 8))
    assert row["measured_s"] == pytest.approx(0.0052, abs=1e-4)
    assert row["error_percent"] == pytest.approx(100 * (row["simulated_s"] / row["measured_s"] - 1))


def test_steps_that_are_too_slow_are_told(headcount: Callable[..., Any], files: Callable[..., Path]) -> None:
    ran = headcount("calibrate", "check", files(recording({"gemm_bandwidth_share": -0.5})), "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)["recordings"][0]
    assert not found["as_it_should_be"]
    assert found["decode_ratio"] > 1.2 > found["limit_factor"]


def test_steps_and_requests_are_checked_one_after_the_other(
    headcount: Callable[..., Any], files: Callable[..., Path]
) -> None:
    ran = headcount("calibrate", "check", files(recording({}), closed_run(4)), *DEPLOYMENT)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "some inputs hold engine steps, others requests; check one kind after the other" in ran.err


def test_a_check_in_words(headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path) -> None:
    drawing = tmp_path / "check.svg"
    folder = files(measured_closed_run(4, {"glue_s": 0.5}))
    ran = headcount("calibrate", "check", folder, *DEPLOYMENT, "--report", drawing)
    assert ran.code == 0, ran.err
    assert "TPOT mean" in ran.out
    assert drawing.read_text(encoding="utf-8").startswith('<svg xmlns="http://www.w3.org/2000/svg"')


def test_a_check_says_by_how_much_a_server_is_too_slow_and_what_would_explain_it(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path
) -> None:
    page = tmp_path / "check.html"
    folder = files(measured_closed_run(4, {"gemm_bandwidth_share": -0.5}))
    ran = headcount("calibrate", "check", folder, *DEPLOYMENT, "--report", page)
    assert ran.code == 0, ran.err
    verdict, figures, explanation = ran.out.splitlines()[1:4]
    assert verdict.startswith("verdict: your server is slower than expected for h100-sxm: TPOT is ")
    assert "90 % of servers lie within ±" in figures
    intervals = re.findall(r"±(\d+)% .TPOT.", " ".join(ran.out.split()))
    assert len(intervals) >= 2 and len(set(intervals)) == 1, "one interval, above and below"
    assert explanation.startswith("  best explanation of")
    shown = page.read_text(encoding="utf-8").replace("\u00a0", " ")
    assert "Your server is slower than expected for h100-sxm: TPOT is " in shown


@pytest.mark.parametrize("force", [False, True])
def test_a_refused_fit_leaves_no_file_and_force_reaches_it(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    force: bool,
) -> None:  # fmt: skip
    def refuse(*_: Any, force: bool, **__: Any) -> None:
        raise ValueError(f"asked with force {force}")

    monkeypatch.setattr("headcount.queries.calibrate.fit.fit_inputs", refuse)
    profile = tmp_path / "p.toml"
    command = ("calibrate", "fit", files(recording({}, count=9)), *DEPLOYMENT, "--out", profile)
    ran = headcount(*command, *(("--force",) if force else ()))
    assert f"asked with force {force}" in ran.err
    assert not profile.exists()


@pytest.mark.slow
def test_a_fit_in_words(headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path) -> None:
    folder = files(recording({"gemm_bandwidth_share": -0.3}, count=120))
    ran = headcount("calibrate", "fit", folder, *DEPLOYMENT, "--out", tmp_path / "p.toml")
    assert ran.code == 0, ran.err
    assert "error on data left out, %" in ran.out
    assert "use it with --latency-profile" in ran.out


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (("fit", "FILES", *DEPLOYMENT, "--out", "nowhere/p.toml"), "--out nowhere/p.toml: there is no folder "),
        (("fit", "FILES", *DEPLOYMENT, "--out", "p.toml", "--step-s", "0.1"), "--step-s cannot be fitted"),
        (("fit", "absent", *DEPLOYMENT, "--out", "p.toml"), "absent cannot be read"),
        (("fit", "FILES", "--model", "qwen3-8b", "--out", "p.toml"), "--model qwen3-8b is not the recording's, which"),
        (("check", "FILES", "--model", "qwen3-8b"), "is of llama-3.1-8b; leave --model out"),
        (("check", "FILES", "--ttft", "2s"), "--ttft is about requests, and a recording holds engine steps; leave it"),
        (("check", "FILES", "--warmup", "20s"), "--warmup is about requests"),
        (("check", "FILES", *DEPLOYMENT, "--report", "p.png"), "must end in .csv or .html"),
    ],
)
def test_a_wrong_fit_or_check_is_told(
    headcount: Callable[..., Any], files: Callable[..., Path], tmp_path: Path, command: tuple[Any, ...], told: str
) -> None:
    folder = files(recording({}, count=30))
    ran = headcount("calibrate", *(folder if word == "FILES" else word for word in command))
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
    assert not Path("p.toml").exists()


def test_other_bytes_have_another_fingerprint(files: Callable[..., Path]) -> None:
    folder = files(closed_run(1), closed_run(2))
    whole, one = read_inputs([folder]), read_inputs([folder / "0.json"])
    assert (len(whole.runs), len(one.runs)) == (2, 1)
    assert whole.sha256 != one.sha256
    assert whole.sha256 == read_inputs([folder]).sha256
    (folder / "1.json").write_text("other")
    assert whole.sha256 != read_inputs([folder]).sha256
    with pytest.raises(ValueError, match="cannot be read"):
        read_inputs([folder / "9.json"])
    (folder / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no file"):
        read_inputs([folder / "empty"])


def test_a_fit_does_not_replace_what_it_read(headcount: Callable[..., Any], files: Callable[..., Path]) -> None:
    folder = files(recording({}, count=120))
    ran = headcount("calibrate", "fit", folder, *DEPLOYMENT, "--out", folder / "0.json")
    assert (ran.code, ran.out) == (2, "")
    assert "is an input as well" in ran.err
    assert (folder / "0.json").read_text() == "0"


def test_one_setting_outside_a_profile_is_one(headcount: Callable[..., Any], profile: Path) -> None:
    ran = headcount("simulate", *DEPLOYMENT, *LOAD, "--latency-profile", profile, "-tp", 2)
    assert "; 1 setting lies outside it" in ran.out


@pytest.mark.parametrize("spread", ["0", "-0.5", "1.5", "inf"])
@pytest.mark.parametrize(
    "command", [("check", "runs", *DEPLOYMENT), ("fit", "runs", *DEPLOYMENT, "--out", "profile.toml")]
)
def test_a_spread_of_lengths_is_a_share_of_them(
    headcount: Callable[..., Any], command: tuple[Any, ...], spread: str
) -> None:
    ran = headcount("calibrate", *command, "--length-spread", spread)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"--length-spread is {spread}; it must be above 0, at most 1" in ran.err
