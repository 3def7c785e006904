"""A run of prompts that share their beginnings is replayed with what its server found in the cache."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.check.doctor import Diagnosis, diagnose
from calibrate.check.replay import replay, simulated_figures
from calibrate.check.runs import check_run
from calibrate.measured_run import MeasuredRun
from tests.calibrate.check.test_replay import run_of, table_of
from workloads.load import load_workload

BLOCK = 512  # tokens of a block of Mooncake's traces


def trace_of_sessions(path: Path, *, sessions: int = 60, turns: int = 3, fresh: int = 8) -> Path:
    """Every turn adds two blocks to the session's; sessions share nothing."""
    lines = []
    for turn in range(turns):
        for session in range(sessions):
            blocks = fresh + 2 * turn
            ids = [10_000 * session + block for block in range(blocks)]
            time_ms = 1000 * (20 * turn + 0.3 * session)
            lines.append(
                {"timestamp": int(time_ms), "input_length": BLOCK * blocks, "output_length": 64, "hash_ids": ids}
            )
    path.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    return path


def healthy(path: Path) -> MeasuredRun:
    """What a client says of the trace's run on the simulated server: lengths and latencies, and no sessions."""
    trace = load_workload(str(path)).table  # type: ignore[union-attr]
    run = run_of(None, concurrency=8.0, num_requests=float(trace.num_requests))
    item = replay(run, {"workload": str(path)})
    result = item.simulate()
    figures = simulated_figures(result)
    told = {name: figures[name] for name in ("ttft_s.mean", "tpot_s.mean", "e2e_s.mean", "requests_per_s")}
    load = {**run.load, "input_len": float(trace.prompt_tokens.mean()), "output_len": 64.0}
    return replace(run, aggregates=told, load=load, notes=(f"{figures['prefix_hit_rate']}",))


def verdict(run: MeasuredRun, **values: Any) -> Diagnosis:
    item = replay(run, values)
    found = diagnose([(item, check_run(item))], values)
    assert found is not None
    return found


def test_a_healthy_server_of_multi_turn_prompts_is_as_expected(tmp_path: Path) -> None:
    """Without its sessions it seems faster than it can be; the trace or the hit rate tell why."""
    path = trace_of_sessions(tmp_path / "trace.jsonl")
    run = healthy(path)
    hits = float(run.notes[0])
    assert hits > 0.3
    unknown, known, counted = verdict(run), verdict(run, workload=str(path)), verdict(run, prefix_hit_rate=hits)
    assert unknown.fit.ratios["ttft"] < 0.8
    assert known.fit.misfit == pytest.approx(0, abs=1e-9)
    assert counted.fit.is_expected
    assert abs(math.log(counted.fit.ratios["ttft"])) < abs(math.log(unknown.fit.ratios["ttft"])) / 2


@settings(max_examples=15, deadline=None)
@given(share=st.floats(0, 0.9), concurrency=st.integers(1, 16), is_open=st.booleans())
def test_the_simulated_server_finds_the_share_that_the_real_one_found(
    share: float, concurrency: int, is_open: bool
) -> None:
    """To a block of 16 tokens of each prompt, and less what the first step's requests cannot find."""
    load = {"rate": 1.0} if is_open else {"concurrency": float(concurrency)}
    run = run_of(None, num_requests=160.0, input_len=1000.0, output_len=4.0, **load)
    item = replay(run, {"prefix_hit_rate": share})
    assert item.run.aggregates["prefix_hit_rate"] == share
    found = simulated_figures(item.simulate()).get("prefix_hit_rate", 0.0)
    assert share - 0.06 <= found <= share + 0.001


def test_sessions_alone_tell_what_their_turns_share() -> None:
    """A prompt that can hold the session's prompt and answer before begins with them; a shorter one does not."""
    requests = table_of(
        6, gap_s=5.0, session=[1, 1, 1, 2, 2, 3], prompt_tokens=[320, 480, 160, 320, 330, 640], output_tokens=16
    )
    figures = simulated_figures(replay(run_of(requests)).simulate())
    assert figures["prefix_hit_rate"] == pytest.approx(320 / 2250, abs=0.01)
    alone = simulated_figures(replay(run_of(requests.assign(session=np.arange(6.0)))).simulate())
    assert alone.get("prefix_hit_rate", 0.0) == 0


@settings(max_examples=25, deadline=None)
@given(st.sets(st.integers(0, 59), min_size=20))
def test_a_run_s_own_requests_have_the_contents_of_the_trace_that_was_sent(
    tmp_path_factory: pytest.TempPathFactory, sent: set[int]
) -> None:
    """Of a client that stopped early, with its own times; its first answer ended sooner than asked."""
    path = trace_of_sessions(tmp_path_factory.mktemp("sent") / "trace.jsonl", sessions=1, turns=60, fresh=1)
    trace = load_workload(str(path)).table  # type: ignore[union-attr]
    rows = np.array(sorted(sent))
    lengths = {"prompt_tokens": trace.prompt_tokens[rows], "output_tokens": trace.output_tokens[rows]}
    lengths["output_tokens"][0] -= 1
    requests = table_of(len(rows), gap_s=3.0, **lengths)
    found = replay(run_of(requests), {"workload": str(path)}).table
    assert found.arrival_s.tolist() == (3.0 * np.arange(len(rows))).tolist()
    contents = [
        [table.span_content[start : start + count].tolist() for start, count in zip(*of, strict=True)]
        for table, of in ((found, (found.span_start, found.span_count)), (trace, (trace.span_start, trace.span_count)))
    ]
    assert contents[0][1:] == [contents[1][row] for row in rows[1:]]
    assert contents[0][0][0] > trace.span_content.max()


def test_a_run_of_other_lengths_has_the_trace_s_own_requests(tmp_path: Path) -> None:
    path = trace_of_sessions(tmp_path / "trace.jsonl", sessions=4, turns=1)
    requests = table_of(3, gap_s=3.0, prompt_tokens=[7.0, 8.0, 9.0])
    found = replay(run_of(requests), {"workload": str(path)}).table
    assert found.prompt_tokens.tolist() == [8 * BLOCK] * 3


def test_a_trace_that_is_shorter_than_the_run_is_refused(tmp_path: Path) -> None:
    path = trace_of_sessions(tmp_path / "trace.jsonl", sessions=2, turns=1)
    run = run_of(None, concurrency=1.0, num_requests=9.0)
    with pytest.raises(ValueError, match=r"--workload .*: holds 2 requests, and run.json sent 9; give the trace"):
        replay(run, {"workload": str(path)})
    with pytest.raises(ValueError, match="is a population of users; give the trace that was sent"):
        replay(run, {"workload": "chat"})
