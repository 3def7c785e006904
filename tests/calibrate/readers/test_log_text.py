"""A log reads the same however a terminal, a container or a paste has changed its lines."""

import dataclasses
import tarfile
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from calibrate.readers import read_measured, read_recordings
from calibrate.readers.parsing.startup_log import StartupLog, read_startup_log
from tests.calibrate.readers.test_sglang_log import log_text as sglang_log
from tests.calibrate.readers.test_startup_log import DATA, log_text, written

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PREFIXES = (
    "",
    "vllm-1  | ",
    "[pod/llama-7d9f8b-x2k4p/vllm] ",
    "2026-09-03T02:11:28.123456789Z ",
    "2026-09-03T02:11:28.123456789Z stdout F ",
    "Sep 03 02:11:28 gpu-node-3 vllm[4117]: ",
    "2026-09-03T02:11:28+0000 gpu-node-3 docker[4117]: ",
    "> ",
)
TERMINAL, WORDS, STRIPPED, RULER = "terminal", "words", "stripped", "indented"
ARGUMENTS = (
    "{'model_tag': 'Qwen/Qwen2.5-7B-Instruct', 'port': 8081, 'model': 'Qwen/Qwen2.5-7B-Instruct', "
    "'max_model_len': 8192, 'tensor_parallel_size': 2, 'gpu_memory_utilization': 0.5, 'hf_overrides': {'a': [1, 2]}}"
)


def wrapped(text: str, width: int, style: str) -> str:
    """As a terminal of that width shows it and as it is copied from there."""
    lines: list[str] = []
    for line in text.split("\n"):
        if style == WORDS:
            lines += textwrap.wrap(line, width) or [""]
            continue
        pieces = [line[start : start + width] for start in range(0, max(len(line), 1), width)]
        pieces = [piece.rstrip() for piece in pieces] if style == STRIPPED else pieces
        lines += [pieces[0], *("    " + piece for piece in pieces[1:])] if style == RULER else pieces
    return "\n".join(lines)


def coloured(text: str) -> str:
    """As vLLM colours the names of its processes, and as a paste without escape characters keeps them."""
    return text.replace("(Worker", "\x1b[0;36m(Worker").replace("(EngineCore", "[1;36m(EngineCore")


def shape(log: StartupLog) -> StartupLog:
    return dataclasses.replace(log, path=Path())


def prefixed(text: str, prefix: str) -> str:
    return "\n".join(prefix + line for line in text.split("\n"))


@st.composite
def changes(draw: st.DrawFn) -> Callable[[str], str]:
    """Colours, a prefix and wrapping, in either order."""
    style, width = draw(st.sampled_from([TERMINAL, WORDS, STRIPPED, RULER])), draw(st.integers(60, 240))
    prefix, is_coloured, wraps_first = draw(st.sampled_from(PREFIXES)), draw(st.booleans()), draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n"]))

    def change(text: str) -> str:
        text = coloured(text) if is_coloured else text
        text = (
            prefixed(wrapped(text, width, style), prefix)
            if wraps_first
            else wrapped(prefixed(text, prefix), width, style)
        )
        return text.replace("\n", end)

    return change


@QUICK
@given(change=changes(), version=st.sampled_from(["0.10.1", "0.19.0", "0.32.0"]))
def test_a_start_up_log_of_vllm(change: Callable[[str], str], version: str, tmp_path: Path) -> None:
    text = log_text(version=version, arguments=ARGUMENTS)
    original, changed = (read_startup_log(written(tmp_path, each)) for each in (text, change(text)))
    assert original.tensor_parallel_size == 2
    assert not original.missing + original.contradictions
    assert shape(changed) == shape(original)


@QUICK
@given(change=changes())
def test_a_log_of_sglang(change: Callable[[str], str], tmp_path: Path) -> None:
    text = sglang_log() + "".join(
        f"[2026-08-27 03:47:{second:02} TP0] {batch}\n"
        for second, batch in enumerate(
            [
                "Prefill batch, #new-seq: 2, #new-token: 512, #cached-token: 8, token usage: 0.01, #queue-req: 0",
                "Decode batch, #running-req: 2, #token: 900, token usage: 0.02, gen throughput (token/s): 91.5, "
                "#queue-req: 1",
                "Decode batch, #running-req: 4, #token: 990, token usage: 0.04, gen throughput (token/s): 97.5, "
                "#queue-req: 0",
            ]
        )
    )
    (original,), (changed,) = (read_measured(written(tmp_path, each)) for each in (text, change(text)))
    assert original.aggregates["running_mean"] == 3
    for part in ("options", "load", "aggregates"):
        assert getattr(changed, part) == getattr(original, part)


@QUICK
@given(change=changes())
def test_a_log_of_iterations(change: Callable[[str], str], tmp_path: Path) -> None:
    text = "\n".join(
        f"(EngineCore pid=7) INFO 04-22 00:09:{number:02} [loggers.py:9] Engine 000: Iteration({number}): "
        f"{number % 2} context requests, {64 * (number % 2)} context tokens, 3 generation requests, "
        f"3 generation tokens, iteration elapsed time: {10 + number}.25 ms, GPU KV cache usage: 1.5%"
        for number in range(9)
    )
    (original,), (changed,) = (read_recordings(written(tmp_path, each)) for each in (text, change(text)))
    assert len(original.steps) == 9
    assert changed.steps.equals(original.steps)


@QUICK
@given(change=changes(), lines=st.lists(st.tuples(st.integers(1, 400), st.integers(0, 100)), min_size=1, max_size=5))
def test_acceptance_by_position(change: Callable[[str], str], lines: list[tuple[int, int]], tmp_path: Path) -> None:
    """The share of all drafts of the log, whatever each line has, as in `per_position_acceptance_rate`."""
    text = "\n".join(
        f"(APIServer pid=1) INFO 11-02 10:{number:02}:00 [metrics.py:1] SpecDecoding metrics: Mean acceptance length: "
        f"{1 + 0.01 * share + 0.1:.2f}, Accepted throughput: 1.00 tokens/s, Drafted throughput: 2.00 tokens/s, "
        f"Accepted: {drafts * (share + 10)} tokens, Drafted: {200 * drafts} tokens, Per-position acceptance rate: "
        f"{share / 100:.3f}, 0.100, Avg Draft acceptance rate: 1.0%"
        for number, (drafts, share) in enumerate(lines)
    )
    (run,) = read_measured(written(tmp_path, change(text)))
    drafts, accepted = (sum(column) for column in zip(*((n, n * share) for n, share in lines), strict=True))
    assert run.aggregates["spec_decode_acceptance_rate_at_1"] == pytest.approx(accepted / drafts / 100)
    assert run.aggregates["spec_decode_acceptance_rate_at_2"] == pytest.approx(0.1)
    assert run.aggregates["spec_decode_acceptance_length"] == pytest.approx(1.1 + accepted / drafts / 100)
    assert '"per_position_acceptance_rate": [' in run.notes[0]


@pytest.mark.skipif(not DATA.is_dir(), reason="the measured start-up logs are not here")
@pytest.mark.parametrize("number", range(4))
def test_the_logs_of_real_servers(number: int, tmp_path: Path) -> None:
    """Each of 29 servers, on one to four GPUs whose ranks' lines are interleaved."""
    with tarfile.open(DATA / "vllm_startup_logs_h100.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    paths = [path for path in sorted(tmp_path.rglob("*.log")) if not path.name.endswith(".FAILED.log")]
    assert len(paths) >= 29
    for index, path in enumerate(paths):
        original = read_startup_log(path)
        style = (TERMINAL, WORDS, STRIPPED, RULER)[(index + number) % 4]
        text = prefixed(path.read_text(encoding="utf-8"), PREFIXES[(index + 3 * number) % len(PREFIXES)])
        path.write_text(wrapped(text, 60 + 37 * ((index + number) % 5), style), encoding="utf-8")
        assert shape(read_startup_log(path)) == shape(original), path.name


@pytest.mark.parametrize(
    ("arguments", "missing", "size"),
    [
        (ARGUMENTS[:170], "the end of 'non-default args'", 2),
        (None, "'non-default args'", 2),  # the ranks' names tell
    ],
)
def test_what_a_truncated_log_lacks_is_named(arguments: str | None, missing: str, size: int, tmp_path: Path) -> None:
    lines = log_text(arguments=arguments or "").split("\n")
    text = "\n".join(line for line in lines if arguments or "non-default" not in line)
    log = read_startup_log(written(tmp_path, text))
    assert log.missing == (missing,)
    assert log.tensor_parallel_size == size


def test_old_releases_log_a_namespace(tmp_path: Path) -> None:
    """vLLM 0.8 and before log every argument, defaults too, in the form of argparse."""
    namespace = (
        "Namespace(model_tag='m', f=<function serve at 0x7f>, max_num_seqs=None, tensor_parallel_size=4, dtype='auto')"
    )
    text = log_text(version="0.8.5", arguments="").replace("non-default args: ", f"args: {namespace}")
    log = read_startup_log(written(tmp_path, text))
    assert (log.tensor_parallel_size, log.options["model"], log.missing) == (4, "m", ())
    assert "max_num_seqs" not in log.options


def test_a_log_that_says_two_sizes_is_told(tmp_path: Path) -> None:
    text = log_text(arguments="{'tensor_parallel_size': 4}").replace(
        "model='x'", "model='x', tensor_parallel_size=2, seed=0"
    )
    (told,) = read_startup_log(written(tmp_path, text)).contradictions
    assert told == "its arguments say tensor_parallel_size 4, its engine 2"
