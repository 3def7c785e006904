"""vLLM's log of iterations, told from what it leaves out."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.readers import find_format, read_measured, read_recordings
from calibrate.recording import STEP_COLUMNS

STARTED = """(APIServer pid=7) INFO 11-21 23:54:29 [api_utils.py:286] non-default args: {'model': 'm', 'max_num_seqs': 16}
(EngineCore pid=8) INFO 11-21 23:54:40 [core.py:122] Initializing a V1 LLM engine (v0.32.0) with config: model='m'
(EngineCore pid=8) INFO 11-21 23:56:15 [kv_cache_utils.py:2327] DEVICE KV cache size: 4,096 tokens, Maximum concurrency for 2,048 tokens per request: 2.00x
"""  # noqa: E501  as vLLM logs it


def line(
    index: int,
    steps: tuple[int, int, int, int, float],
    *,
    engine: str = "Engine 000: ",
    second: int = 0,
    dummy: str = "",
    device: str = "GPU",
) -> str:
    """As `_log_iteration_details` of vllm/v1/metrics/loggers.py writes it."""
    contexts, context_tokens, generations, generation_tokens, elapsed_ms = steps
    return (
        f"(APIServer pid=7) INFO 12-31 23:59:{second:02} [loggers.py:199] {engine}Iteration({index}): {contexts} "
        f"context requests, {context_tokens} context tokens, {generations} generation requests, "
        f"{generation_tokens} generation tokens, iteration elapsed time: {elapsed_ms:.2f} ms{dummy}, "
        f"{device} KV cache usage: 12.5%\n"
    )


def log(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "server.log"
    path.write_text(text, encoding="utf-8")
    return path


step_counts = st.tuples(
    st.integers(0, 9), st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99), st.integers(1, 10**6)
).map(lambda found: (*found[:4], found[4] / 100))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(step_counts, min_size=1, max_size=8))
def test_steps_written_and_read_back_are_the_same(
    steps: list[tuple[int, int, int, int, float]], tmp_path: Path
) -> None:
    text = "".join("INFO something else\n" + line(100 + number, step) for number, step in enumerate(steps))
    (found,) = read_recordings(log(tmp_path, text))
    assert list(found.steps["tokens"]) == [step[1] + step[3] for step in steps]
    assert list(found.steps["sequences"]) == [step[0] + step[2] for step in steps]
    assert list(found.steps["prefill_tokens"]) == [step[1] for step in steps]
    np.testing.assert_allclose(found.steps["elapsed_s"], [step[4] / 1e3 for step in steps], atol=1e-9)
    assert list(found.steps["sampled"].isna()) == [step[0] > 0 for step in steps]
    assert not found.excluded


def test_what_is_not_logged_is_nan(tmp_path: Path) -> None:
    (found,) = read_recordings(log(tmp_path, line(0, (1, 100, 2, 2, 5.0))))
    assert list(found.steps)[: len(STEP_COLUMNS)] == list(STEP_COLUMNS)
    unknown = {name for name in STEP_COLUMNS if found.steps[name].isna().all()}
    assert unknown == {
        "cycle_s", "schedule_s", "sampled", "decode_context", "window_context", "prefill_work", "window_prefill_work"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("device", "argument", "is_synchronous"),
    [("GPU", "", False), ("CPU", "", True), ("GPU", ", 'async_scheduling': False", True)],
)
def test_scheduling_is_synchronous_only_where_the_log_says_so(
    device: str, argument: str, is_synchronous: bool, tmp_path: Path
) -> None:
    started = STARTED.replace("DEVICE", device).replace("16}", f"16{argument}}}")
    path = log(tmp_path, started + line(0, (0, 0, 2, 2, 5.0), device=device))
    assert find_format(path) == "vllm_iterations"
    (found,) = read_recordings(path)
    assert found.environment["synchronous"] is is_synchronous
    assert found.environment["vllm_version"] == "0.32.0"
    assert found.options["max_num_seqs"] == 16


def test_engines_and_restarts_are_recordings_of_their_own(tmp_path: Path) -> None:
    step = (0, 0, 1, 1, 5.0)
    text = line(0, step) + line(0, step, engine="Engine 001: ") + line(1, step) + 2 * line(0, step, second=9)
    found = read_recordings(log(tmp_path, text))
    assert [(one.environment["engine"], len(one.steps)) for one in found] == [(0, 2), (1, 1), (0, 1), (0, 1)]


def test_dummies_and_missing_steps_are_counted_out(tmp_path: Path) -> None:
    step = (0, 0, 1, 1, 5.0)
    text = line(0, step) + line(1, step, dummy=" (dummy)", second=1) + line(5, step, second=3)
    (found,) = read_recordings(log(tmp_path, text))
    assert dict(found.excluded) == {"dummy step of data parallelism": 1, "step missing from the log": 3}
    assert list(found.steps["start_s"]) == [0, 3]


def test_a_log_of_iterations_holds_no_requests(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds engine steps, not requests"):
        read_measured(log(tmp_path, line(0, (0, 0, 1, 1, 5.0))))


def test_a_log_of_the_start_alone_tells_settings_and_memory(tmp_path: Path) -> None:
    path = log(tmp_path, STARTED.replace("DEVICE", "GPU"))
    assert find_format(path) == "vllm_startup"
    (run,) = read_measured(path)
    assert run.options["model"] == "m"
    assert (run.aggregates["kv_cache_tokens"], run.aggregates["max_concurrency"]) == (4096, 2)
    assert run.requests is None
    with pytest.raises(ValueError, match="serve with --enable-logging-iteration-details"):
        read_recordings(path, "vllm_iterations")


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_log_is_read_or_refused_with_its_path(data: st.DataObject, tmp_path: Path) -> None:
    text = STARTED.replace("DEVICE", "GPU") + line(0, (1, 10, 1, 1, 5.0)) + line(1, (0, 0, 2, 2, 5.0))
    start = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.sampled_from(["", "\n", "{", "'", "1.2.3", "99:99:99", "02-30 25:61:00", "9" * 400]))
    path = log(tmp_path, text[:start] + junk + text[data.draw(st.integers(start, len(text))) :])
    try:
        read_recordings(path, "vllm_iterations")
    except ValueError as error:
        assert str(path) in str(error)
