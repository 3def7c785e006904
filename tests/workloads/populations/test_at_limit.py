"""Conversations that go on where the next turn would not fit."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from files.reading import InputError
from headcount.inputs.reading.traffic import read_traffic
from simulator.study.loads import UserLoad
from tests.workloads.trace_files import shared_tokens
from workloads.distributions import Fixed, Uniform
from workloads.effects import traffic_effects
from workloads.load import load_preset, load_workload
from workloads.populations.at_limit import BEGINS_ANEW, GOES_ON, OPENS, SUMMARY, AtLimit
from workloads.populations.population import Population
from workloads.populations.sessions import Sessions
from workloads.traffic import changed

SYSTEM, LIMIT, TURNS, KEPT, SUMMARY_TOKENS = 40, 640, 12, 0.5, 80
LONG = Population(
    name="long", system_prompt_tokens=SYSTEM, turns=Fixed(value=TURNS), user_tokens=Uniform(low=5, high=60),
    output_tokens=Uniform(low=5, high=90), think_time_s=Fixed(value=10.0),
)  # fmt: skip
TRUNCATES = replace(LONG, at_limit=AtLimit(does="truncate", kept_share=KEPT))
SUMMARIZES = replace(LONG, at_limit=AtLimit(does="summarize", summary_tokens=SUMMARY_TOKENS))
BOTH = [TRUNCATES, SUMMARIZES]


def drawn(population: Population, *, users: int = 30, turns: int = 60) -> tuple[Sessions, np.ndarray]:
    found = population.sessions(users, turns, 1, LIMIT)
    assert found.what is not None
    found.table().validate()
    return found, found.what


@pytest.mark.parametrize("population", BOTH, ids=["truncate", "summarize"])
def test_every_turn_fits_and_no_conversation_ends_before_its_last_turn(population: Population) -> None:
    found, what = drawn(population)
    assert (found.prompt_tokens + found.output_tokens <= LIMIT).all()
    assert (what == BEGINS_ANEW).any()
    for user in range(30):
        opens = np.flatnonzero(what[user] == OPENS)
        turns = [int((what[user, a:b] != SUMMARY).sum()) for a, b in pairwise(opens)]
        assert turns and set(turns) == {TURNS}
    rows = what.ravel() == OPENS
    rows[::60] = True  # a user's first row counts as one
    np.testing.assert_array_equal(found.opens(), rows)


def test_a_truncated_prompt_finds_the_system_prompt_alone_and_the_next_finds_all_of_it() -> None:
    found, what = drawn(TRUNCATES)
    table, room = found.table(), LIMIT - SYSTEM
    for row in np.flatnonzero(what.ravel() == BEGINS_ANEW):
        if row % 60:
            assert shared_tokens(table, row - 1, row) == SYSTEM
            said = int(table.prompt_tokens[row - 1] + table.output_tokens[row - 1])
            assert table.prompt_tokens[row] < said
            assert table.prompt_tokens[row] - SYSTEM <= KEPT * room + 60
        if row % 60 < 59 and what.ravel()[row + 1] == GOES_ON:
            assert shared_tokens(table, row, row + 1) == table.prompt_tokens[row] + table.output_tokens[row]


def test_a_summary_is_asked_for_at_once_and_stands_for_all_that_was_said() -> None:
    found, what = drawn(SUMMARIZES)
    table, flat = found.table(), what.ravel()
    asked = np.flatnonzero(flat == SUMMARY)
    assert len(asked) > 30
    for row in asked[(asked % 60 > 0) & (asked % 60 < 59)]:
        assert table.prompt_tokens[row] == table.prompt_tokens[row - 1] + table.output_tokens[row - 1]
        assert table.output_tokens[row] == SUMMARY_TOKENS
        assert shared_tokens(table, row - 1, row) == table.prompt_tokens[row]
        assert (flat[row + 1], table.think_s[row + 1]) == (BEGINS_ANEW, 0)
        assert 5 <= table.prompt_tokens[row + 1] - SYSTEM - SUMMARY_TOKENS <= 60
        assert shared_tokens(table, row, row + 1) == SYSTEM
    others = np.append(False, flat[:-1] == SUMMARY) | (np.arange(len(flat)) % 60 == 0)
    assert (table.think_s[~others] == 10).all()


@pytest.mark.parametrize("population", BOTH, ids=["truncate", "summarize"])
@pytest.mark.parametrize("preset", ["chat", "rag", "reasoning"])
def test_nothing_changes_where_all_fits(population: Population, preset: str) -> None:
    plain = load_preset(preset)
    before = plain.draw(20, 8, 3, 2**30)
    after = replace(plain, at_limit=population.at_limit).draw(20, 8, 3, 2**30)
    for name, column in vars(before).items():
        np.testing.assert_array_equal(column, getattr(after, name), err_msg=name)


@pytest.mark.parametrize("population", BOTH, ids=["truncate", "summarize"])
def test_blocks_of_turns_go_on_as_the_whole_does(population: Population) -> None:
    whole = population.sessions(9, 40, 2, LIMIT)
    blocks = population.blocks(9, 8, 2, LIMIT)
    parts = [next(blocks) for _ in range(5)]
    for name in ("prompt_tokens", "output_tokens", "conversation", "what", "think_s"):
        joined = np.concatenate([getattr(part, name) for part in parts], axis=1)
        np.testing.assert_array_equal(joined, getattr(whole, name), err_msg=name)


@pytest.mark.parametrize("population", BOTH, ids=["truncate", "summarize"])
def test_the_answer_tells_which_share_of_conversations_reach_the_limit(population: Population) -> None:
    _, what = drawn(population, users=400, turns=80)
    reach = []
    for user in range(400):
        opens = np.flatnonzero(what[user] == OPENS)
        reach += [(what[user, a:b] == BEGINS_ANEW).any() for a, b in pairwise(opens)]
    found = traffic_effects(population, LIMIT)
    share = found.conversations_truncated if population is TRUNCATES else found.conversations_summarized
    assert found.conversations_cut is None
    assert share == pytest.approx(np.mean(reach), abs=0.03)
    assert found.worst == share


def test_a_search_corrects_nothing_that_the_equilibrium_does_not_know() -> None:
    assert UserLoad(population=TRUNCATES, max_model_len=LIMIT, seed=0).draw(20, 0).surplus == (0.0, 0.0)


def test_conversations_go_on_where_traffic_says_so() -> None:
    agent = load_preset("agent")
    ends, goes_on = (changed(agent, read_traffic(f"drop-oldest={each}")) for each in ("false", "true"))
    assert ends.at_limit == agent.at_limit == AtLimit()
    assert goes_on.at_limit.does == "truncate" and goes_on.at_limit.kept_share == 0.5
    cut, whole = (traffic_effects(each, 131_072) for each in (ends, goes_on))
    assert cut.conversations_cut == pytest.approx(whole.conversations_truncated or 0, rel=0.05)
    assert whole.conversations_cut is None
    assert whole.asked_context_tokens == cut.asked_context_tokens, "what either leaves out is said"
    assert not (cut.is_as_asked or whole.is_as_asked)


def test_a_file_says_what_happens_at_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('extends = "agent"\n[at_limit]\ndoes = "summarize"\nsummary_tokens = 1500\nsource = "ours"\n')
    found = load_workload(path)
    assert isinstance(found, Population)
    assert found.at_limit == AtLimit(does="summarize", summary_tokens=1500, source="ours")
    for wrong, said in {
        'does = "summarize"': "needs summary_tokens",
        'does = "truncate"\nkept_share = 1.0': "a share from 0, below 1",
        'does = "end"\nkept_share = 0.5': "has kept_share, which goes with does = 'truncate'",
        'does = "forget"': "forget",
    }.items():
        path.write_text(f'extends = "agent"\n[at_limit]\n{wrong}\n')
        with pytest.raises(InputError, match=said):
            load_workload(path)
