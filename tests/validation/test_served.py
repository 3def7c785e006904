"""Our own H100, to whose chat load nothing is fitted: the simulated load is the measured one."""

from pathlib import Path

import pytest

from headcount.inputs.engine import EngineInput
from headcount.inputs.measured import MeasuredInput
from headcount.queries.calibrate.check import CheckResult, check
from headcount.queries.calibrate.fit import fit
from tests.validation.data import DATA, needs_data
from validation.accuracy.served import chat, lone
from validation.constants import step_times
from validation.measured.launches import launch_of
from validation.measured.settings import read_settings


@needs_data
def test_the_chat_load_is_simulated_as_it_was_served() -> None:
    found = chat(DATA)
    assert found["measured"]["requests"] == 503
    for name, most in {"ttft_p50": 10, "ttft_p95": 10, "tpot_p50": 5, "tpot_p95": 5}.items():
        assert abs(found["error_percent"]["simulated"][name]) <= most, name
    assert max(abs(error) for error in found["error_percent"]["as_sent"].values()) <= 5
    for which in ("simulated", "as_sent"):
        assert found[which]["attainment"] == pytest.approx(found["measured"]["attainment"], abs=0.02)


@needs_data
def test_no_fit_sees_the_chat_load() -> None:
    fitted = [case.run for case in step_times.runs_of("hopper", DATA)]
    assert not [run for run in fitted if "chat" in str(getattr(run, "source", ""))]


@needs_data
def test_prompts_of_a_thousand_tokens_and_more_take_as_long_alone_as_measured() -> None:
    """The floor of a fp8 server's eager launches is not simulated: prompts of 1,024 and 2,048 took as long."""
    rows = lone(DATA)["rows"]
    plain = [row for row in rows if row["kind"] == "16 bits"]
    assert max(abs(row["ttft"]) for row in plain if row["prompt"] >= 1024) <= 12
    assert max(abs(row["ttft"]) for row in rows if row["prompt"] >= 4096) <= 12


@needs_data
def test_a_token_takes_as_long_alone_as_measured_whatever_its_context() -> None:
    """32 to 16,384 tokens of it, in 16 bits and with fp8 weights and cache."""
    rows = lone(DATA)["rows"]
    assert {row["prompt"] for row in rows} >= {32, 16384}
    assert max(abs(row["tpot"]) for row in rows) <= 7


@needs_data
def test_a_file_of_settings_that_vllm_ignored_is_not_heeded() -> None:
    """`--config=config.yaml` for Llama-3.1-70B on H100, vLLM issue 43252; the script for B200 spells it otherwise."""
    launches = {item.gpu: launch_of(item) for item in read_settings(DATA)[0] if item.model.endswith("Llama-3.1-70B")}
    assert (launches["h100-sxm"].kv_cache_dtype, launches["h100-sxm"].async_scheduling) == ("auto", False)
    assert (launches["b200-sxm"].kv_cache_dtype, launches["b200-sxm"].async_scheduling) == ("fp8", True)


CHAT = Path(__file__).parents[2] / "validation" / "recordings" / "h100-llama-3.1-8b-chat"


@pytest.mark.slow
def test_a_fit_to_the_first_50_seconds_of_a_chat_load_predicts_the_rest(tmp_path: Path) -> None:
    """Requests sent later are load: without them, the fit takes the rest for 11 % slower."""
    run = [CHAT / "profile_export.jsonl.gz"]
    server = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
    sent = {"sent": str(CHAT / "sent_trace.jsonl.gz"), "trace_block_size": 16}
    engine = EngineInput(arguments={"vllm_version": "0.26.0"})
    fitted = fit(run, measured=MeasuredInput(until_s=50.0, **server, **sent), engine=engine)
    fitted.save(tmp_path / "chat.toml")
    profiled = EngineInput(arguments={"vllm_version": "0.26.0", "latency_profile": tmp_path / "chat.toml"})
    rest = check(run, measured=MeasuredInput(warmup_s=50.0, **server, **sent), engine=profiled)
    assert isinstance(rest, CheckResult)
    errors = {row.name: row.error_percent for row in rest.checked[0].rows}
    for name, most in {"tpot_s.mean": 5, "tpot_s.p90": 7, "ttft_s.mean": 9, "ttft_s.p90": 7, "e2e_s.mean": 5}.items():
        assert abs(errors[name] or 0.0) <= most, name
