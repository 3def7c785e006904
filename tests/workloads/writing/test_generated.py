"""Generated traces hold what their population does, in order of arrival."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from files.reading import InputError
from workloads.arrivals import POISSON, GammaGaps, arrival_times
from workloads.description.arrivals import earliest_arrival_s
from workloads.load import load_preset
from workloads.requests import RequestTable
from workloads.synthetic import single_turn_users
from workloads.tenants import read_tenants
from workloads.traces.blocks import shares_content
from workloads.writing import generated
from workloads.writing.generated import requests_at, requests_over

CHAT = load_preset("chat")


def over(duration_s: float, users: int = 40) -> RequestTable:
    return requests_over(CHAT, num_users=users, duration_s=duration_s, seed=3, max_model_len=8192)


def test_requests_come_in_order_of_arrival_within_the_time() -> None:
    table = over(1800)
    table.validate()
    at_s = earliest_arrival_s(table)
    assert (np.diff(at_s) >= 0).all()
    assert at_s[0] >= 0
    assert at_s[-1] <= 1800
    rate = table.num_requests / 1800
    assert rate == pytest.approx(40 / CHAT.think_time_s.mean(), rel=0.2)


def test_a_longer_time_begins_as_a_shorter_one() -> None:
    short, long = over(300), over(3000)
    n = short.num_requests
    for name in ("arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(short, name), getattr(long, name)[:n])
    assert earliest_arrival_s(long)[n] > 300


def test_at_a_rate_requests_come_at_the_times_of_the_process() -> None:
    bursty = GammaGaps(cv=2)
    table = requests_at(CHAT, bursty, rate_per_s=2, num_requests=3000, seed=5, max_model_len=8192)
    table.validate()
    np.testing.assert_array_equal(table.arrival_s, arrival_times(bursty, 2, 3000, 5))
    assert shares_content(table)
    assert table.output_tokens.mean() == pytest.approx(CHAT.output_tokens.mean(), rel=0.1)


def test_few_requests_and_users_without_thought_can_be_generated_at_a_rate() -> None:
    users = single_turn_users(input_len=100, output_len=10, think_time_s=0)
    with pytest.raises(InputError, match="has no think time"):
        requests_over(users, num_users=2, duration_s=10, seed=0, max_model_len=1000)
    one = requests_at(CHAT, POISSON, rate_per_s=1, num_requests=1, seed=0, max_model_len=8192)
    assert one.num_requests == 1
    some = requests_at(users, POISSON, rate_per_s=5, num_requests=500, seed=0, max_model_len=1000)
    some.validate()
    np.testing.assert_array_equal(some.arrival_s, arrival_times(POISSON, 5, 500, 0))


@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0, 3.0])
def test_times_are_put_in_order_however_they_fall_together(spread: float) -> None:
    """The simple twin is numpy's stable sort; of many times that are alike, those that stand first come first."""
    random = np.random.default_rng(1)
    for n in (1, 2, 7, 5000):
        times = np.exp(spread * random.standard_normal(n)) + random.integers(0, 2, n)
        for at_s in (times, np.sort(times)[::-1], np.repeat(times, 3)):
            np.testing.assert_array_equal(generated.by_time(at_s), np.argsort(at_s, kind="stable"))


def spans_of(table: RequestTable, row: int) -> list[tuple[int, int]]:
    rows = slice(table.span_start[row], table.span_start[row] + table.span_count[row])
    return list(zip(table.span_content[rows].tolist(), table.span_end[rows].tolist(), strict=True))


@pytest.mark.parametrize("name", ["chat", "rag", "reasoning", "agent"])
def test_turns_drawn_block_by_block_are_those_drawn_at_once(name: str) -> None:
    """The simple twin draws all turns of everyone, and sorts them."""
    population, users, turns = load_preset(name), 30, 24
    whole = population.sessions(users, turns, 7, 131_072).table()
    blocks = population.blocks(users, 5, 7, 131_072)
    parts = [next(blocks) for _ in range(5)]
    for place in range(turns):
        block, turn = parts[place // 5], place % 5
        rows, there = np.arange(users) * turns + place, np.arange(users) * 5 + turn
        table = block.table()
        for column in ("prompt_tokens", "output_tokens", "span_count"):
            np.testing.assert_array_equal(getattr(whole, column)[rows], getattr(table, column)[there])
        for row, other in zip(rows.tolist(), there.tolist(), strict=True):
            assert spans_of(whole, row) == spans_of(table, other)
        np.testing.assert_allclose(earliest_arrival_s(whole)[rows], block.arrival_s()[:, turn], rtol=1e-9)


@pytest.mark.parametrize("at_once", [50, 1000])
def test_how_many_turns_are_drawn_at_once_changes_nothing(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    one, timed = over(3000), requests_at(CHAT, POISSON, rate_per_s=2, num_requests=900, seed=1, max_model_len=8192)
    monkeypatch.setattr(generated, "_TURNS_AT_ONCE", at_once)
    again = requests_at(CHAT, POISSON, rate_per_s=2, num_requests=900, seed=1, max_model_len=8192)
    for found, other in ((one, over(3000)), (timed, again)):
        for name in ("follows", "think_s", "prompt_tokens", "output_tokens"):
            np.testing.assert_array_equal(getattr(found, name), getattr(other, name))
        np.testing.assert_allclose(found.arrival_s, other.arrival_s, rtol=1e-9)


@pytest.mark.slow
def test_millions_of_requests_take_little_memory(tmp_path: Path) -> None:
    """About 90 bytes each in a table, and as many while it is made."""
    generate = "from headcount.queries.workloads.generate import generate\n"
    run = f"generate('chat', {str(tmp_path / 'o.csv')!r}, rate=100, num_requests={{}})\n"
    peak = "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))"
    used = []
    for count in (100_000, 3_000_000):
        command = [sys.executable, "-c", generate + run.format(count) + peak]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        used.append(1024 * int(done.stdout))
    assert (used[1] - used[0]) / 2_900_000 < 100


def test_tenants_stay_with_their_users_and_keep_their_prompts_and_priorities() -> None:
    given = {"few": {"share": 0.25, "priority": -1, "system_prompt_tokens": 3000}, "most": {"share": 0.75}}
    owned = replace(CHAT, clients=replace(CHAT.clients, tenants=read_tenants(given)))
    plain = over(1800)
    table = requests_over(owned, num_users=40, duration_s=1800, seed=3, max_model_len=8192)
    table.validate()
    assert table.tenancy is not None
    of, follows = table.tenancy.of, table.follows
    assert (of[follows >= 0] == of[follows[follows >= 0]]).all()
    assert (of[follows < 0] == 0).sum() == 10
    np.testing.assert_array_equal(table.priority, np.where(of == 0, -1, 0))
    assert table.prompt_tokens[of == 0].min() > 3000
    np.testing.assert_array_equal(earliest_arrival_s(table), earliest_arrival_s(plain))
    at_rate = requests_at(owned, POISSON, rate_per_s=2, num_requests=3000, seed=5, max_model_len=8192)
    at_rate.validate()
    assert at_rate.tenancy is not None
    assert (at_rate.tenancy.of == 0).mean() == pytest.approx(0.25, abs=0.05)
