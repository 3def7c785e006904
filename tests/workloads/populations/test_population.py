"""Users' conversations against their laws."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.limits import limits_raised
from files.reading import InputError
from kvcache.models.catalog import load_model
from simulator.engines.vllm.images import seen_by
from workloads.distributions import (
    Exponential,
    Fixed,
    Geometric,
    Lognormal,
    RoundedUp,
    Uniform,
    parse_distribution,
    size_biased_quantile,
    token_counts,
)
from workloads.load import load_preset, preset_names
from workloads.populations.counts import met_turns, whole_turns
from workloads.populations.draws import BURN_IN_TURNS, fitted
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.population_file import population_from_mapping
from workloads.populations.sessions import NO_TIME
from workloads.randomness import stream
from workloads.requests import OPEN_END, RequestTable

CHAT = load_preset("chat")
SHORT = Population(
    name="short",
    system_prompt_tokens=10,
    turns=Geometric(mean_value=4),
    user_tokens=Lognormal(median=30, sigma=1.5),
    output_tokens=Lognormal(median=40, sigma=1.0),
    think_time_s=Exponential(mean_value=20),
)
BARE = {"system_prompt": 5, "turns": 2, "think_time_s": 3, "user_tokens": 10, "output_tokens": 20}
UNBOUNDED = 2**30


def contents(table: RequestTable) -> np.ndarray:
    """[n] the content id of each row's last span: its conversation."""
    return table.span_content[table.span_start + table.span_count - 1]


def first_columns(table: RequestTable, num_users: int, turns: int, of: int) -> dict[str, np.ndarray]:
    """What the first users do in their first turns, of tables with `of` turns per user."""
    names = ("arrival_s", "think_s", "prompt_tokens", "output_tokens")
    columns = {name: getattr(table, name) for name in names} | {"content": contents(table)}
    return {name: column.reshape(-1, of)[:num_users, :turns] for name, column in columns.items()}


@pytest.mark.parametrize("stationary_start", [True, False])
@pytest.mark.parametrize("population", [CHAT, SHORT], ids=lambda p: p.name)
@pytest.mark.parametrize("max_model_len", [600, 4096, UNBOUNDED])
def test_what_is_drawn_is_a_valid_table(population: Population, max_model_len: int, stationary_start: bool) -> None:
    table = population.draw(300, 12, 1, max_model_len, stationary_start=stationary_start)
    table.validate()
    assert table.num_requests == 300 * 12
    assert (table.prompt_tokens.astype(np.int64) + table.output_tokens <= max_model_len).all()


@pytest.mark.parametrize("max_model_len", [800, 4096, UNBOUNDED])
def test_prompts_grow_by_exactly_what_was_said_before(max_model_len: int) -> None:
    table = CHAT.draw(500, 10, 7, max_model_len)
    same = np.diff(contents(table)) == 0
    said = table.prompt_tokens + table.output_tokens
    grown = table.prompt_tokens[1:] - said[:-1]
    assert same.any()
    assert (grown[same] >= 1).all()  # the new message, and nothing else
    fixed = replace(CHAT, user_tokens=Fixed(value=33))
    table = fixed.draw(500, 10, 7, max_model_len)
    same = np.diff(contents(table)) == 0
    grown = table.prompt_tokens[1:] - (table.prompt_tokens + table.output_tokens)[:-1]
    assert (grown[same] == 33).all()


def test_a_new_conversation_starts_from_the_system_prompt() -> None:
    table = replace(SHORT, user_tokens=Fixed(value=25)).draw(400, 10, 3, UNBOUNDED)
    opens = np.diff(contents(table)) != 0
    opens[9::10] = False  # from one user to the next, who may be in mid-conversation
    assert opens.any()
    assert (table.prompt_tokens[1:][opens] == 10 + 25).all()


def test_every_conversation_shares_the_system_prompt_alone() -> None:
    table = CHAT.draw(50, 8, 1, 8192)
    first = table.span_start
    assert (table.span_count == 2).all()
    assert (table.span_content[first] == 0).all()
    assert (table.span_end[first] == 512).all()
    user = np.repeat(np.arange(50), 8)
    for content in np.unique(contents(table)):
        assert len(set(user[contents(table) == content])) == 1


def test_without_a_system_prompt_nothing_is_shared() -> None:
    table = replace(SHORT, system_prompt_tokens=0).draw(20, 5, 1, UNBOUNDED)
    table.validate()
    assert (table.span_end == OPEN_END).all()
    assert 0 not in table.span_content


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    counts=st.tuples(st.integers(1, 30), st.integers(1, 8), st.integers(0, 200), st.integers(0, 8)),
    max_model_len=st.sampled_from([520, 700, 4096, 131_072]),
    stationary_start=st.booleans(),
    population=st.sampled_from([CHAT, SHORT]),
)
def test_more_users_or_turns_leave_the_rest_as_it_was(
    seed: int, counts: tuple[int, int, int, int], max_model_len: int, stationary_start: bool, population: Population
) -> None:
    users, turns, more_users, more_turns = counts
    small = population.draw(users, turns, seed, max_model_len, stationary_start=stationary_start)
    large = population.draw(
        users + more_users, turns + more_turns, seed, max_model_len, stationary_start=stationary_start
    )
    expected = first_columns(small, users, turns, turns)
    found = first_columns(large, users, turns, turns + more_turns)
    for name, column in expected.items():
        np.testing.assert_array_equal(found[name], column)


def test_another_seed_gives_other_users() -> None:
    assert (CHAT.draw(50, 3, 1, 8192).prompt_tokens != CHAT.draw(50, 3, 2, 8192).prompt_tokens).any()


def test_think_times_have_their_mean() -> None:
    table = SHORT.draw(2000, 10, 5, UNBOUNDED)
    think = table.think_s[table.follows >= 0]
    assert abs(think.mean() - 20) < 4 * 20 / math.sqrt(len(think))  # an exponential's deviation is its mean


@pytest.mark.parametrize(
    ("think_time_s", "mean_residual_s", "deviation_s"),
    [
        (Exponential(mean_value=20), 20.0, 20.0),
        (Fixed(value=20), 10.0, 20 / math.sqrt(12)),
        # Residual moments: E[X²] / 2 E[X] and E[X³] / 3 E[X].
        (Uniform(low=0, high=30), 10.0, math.sqrt(30**3 / 4 / 45 - 100)),
    ],
    ids=["exponential", "fixed", "uniform"],
)
def test_users_are_met_in_mid_thought(
    think_time_s: Fixed | Exponential | Uniform, mean_residual_s: float, deviation_s: float
) -> None:
    users = 20_000
    table = replace(SHORT, think_time_s=think_time_s).draw(users, 1, 9, UNBOUNDED)
    error = deviation_s / math.sqrt(users)
    assert abs(table.arrival_s.mean() - mean_residual_s) < 4 * error + 1e-3 * mean_residual_s


def test_without_stationary_start_all_begin_with_a_whole_think_time() -> None:
    users = 20_000
    table = replace(SHORT, think_time_s=Uniform(low=10, high=30)).draw(users, 1, 9, UNBOUNDED, stationary_start=False)
    assert (table.arrival_s >= 10).all()
    assert abs(table.arrival_s.mean() - 20) < 4 * 20 / math.sqrt(12 * users)


@pytest.mark.parametrize("max_model_len", [1500, UNBOUNDED])
def test_prompts_are_as_long_at_the_start_as_later(max_model_len: int) -> None:
    """Stationarity: the mean prompt of the first turn is that of the twelfth, within their standard error."""
    table = CHAT.draw(40_000, 12, 11, max_model_len)
    prompts = table.prompt_tokens.reshape(-1, 12).astype(float)
    prompts = np.minimum(prompts, 50_000)  # the heaviest tails would hide what is tested
    difference = prompts[:, 0] - prompts[:, 11]
    assert abs(difference.mean()) < 4 * difference.std() / math.sqrt(len(difference))
    cold = CHAT.draw(40_000, 1, 11, max_model_len, stationary_start=False).prompt_tokens
    assert cold.mean() + 4 * prompts[:, 11].std() / math.sqrt(len(cold)) < prompts[:, 11].mean()


def test_conversations_have_the_turns_drawn_for_them() -> None:
    table = replace(SHORT, turns=Fixed(value=3)).draw(10, 9, 1, UNBOUNDED, stationary_start=False)
    conversation = np.diff(contents(table).reshape(10, 9), axis=1) != 0
    assert (conversation == ([False, False, True] * 3)[:8]).all()


def test_an_overlong_turn_is_cut_to_fit() -> None:
    greedy = replace(SHORT, user_tokens=Fixed(value=5000), output_tokens=Fixed(value=100))
    table = greedy.draw(3, 4, 1, 1010)
    assert (table.prompt_tokens == 910).all()
    assert (table.output_tokens == 100).all()
    wordy = replace(SHORT, user_tokens=Fixed(value=100), output_tokens=Fixed(value=5000)).draw(3, 4, 1, 1010)
    assert (wordy.prompt_tokens == 110).all()
    assert (wordy.output_tokens == 900).all()


def test_a_window_too_short_for_the_system_prompt_is_refused() -> None:
    CHAT.draw(2, 2, 1, 514).validate()
    with pytest.raises(InputError, match="max_model_len is 513; workload 'chat' needs at least 514"):
        CHAT.draw(2, 2, 1, 513)


@pytest.mark.parametrize(("users", "turns"), [(0, 1), (1, 0), (-5, 3)])
def test_nobody_or_nothing_is_refused(users: int, turns: int) -> None:
    with pytest.raises(InputError, match="must be at least 1"):
        CHAT.draw(users, turns, 1, 8192)


@pytest.mark.parametrize("key", ["turns", "output_tokens"])
def test_what_is_always_0_is_refused(key: str) -> None:
    with pytest.raises(InputError, match=f"workload 'bare': {key} is always 0; give a mean above 0"):
        population_from_mapping({**BARE, key: 0}, name="bare")


def test_a_million_turns_stay_small() -> None:
    table = CHAT.draw(20_000, 5, 1, 32_768)
    assert sum(column.nbytes for column in vars(table).values() if column is not None) / table.num_requests < 80
    assert table.num_spans < 2 * table.num_requests


@pytest.mark.parametrize("name", preset_names())
def test_every_part_of_a_preset_has_its_source(name: str) -> None:
    for key, part in load_preset(name).tables.items():
        if key != "title":
            assert len(part["source"]) > 10, f"{name}: {key} has no source"


@pytest.mark.slow
@pytest.mark.parametrize("name", preset_names())
def test_every_preset_gives_valid_tables_whose_means_are_those_in_equilibrium(name: str) -> None:
    population, users = load_preset(name), 1500
    if population.images is not None:
        population = replace(population, images=seen_by(population.images, load_model("qwen3-vl-8b")))
    limit = 16_384 if name == "agent" else 32_768
    sessions = population.sessions(users, 20, 1, limit)
    sessions.head(50).table().validate()
    found = equilibrium(population, limit)
    context = sessions.prompt_tokens + sessions.output_tokens
    for mean, values in ((found.context, context), (found.prompt_square, sessions.prompt_tokens.astype(float) ** 2)):
        by_user = values.mean(axis=1)
        assert abs(mean - by_user.mean()) < 4 * by_user.std(ddof=1) / users**0.5 + 2e-3 * mean


@pytest.mark.parametrize(
    ("name", "key", "mean"),
    [
        ("agent", "turns", 65.8),
        ("agent", "output_tokens", 440),
        ("code", "user_tokens", 2048),
        ("code", "output_tokens", 27.9),
        ("internal-chat", "turns", 1.781),
        ("internal-chat", "output_tokens", 211),
        ("rag", "user_tokens", 7.1),
        ("rag", "output_tokens", 283.2),
        ("reasoning", "output_tokens", 1527),
        ("reasoning", "thinking_share", 0.702),
        ("summarize", "user_tokens", 2588),
        ("summarize", "output_tokens", 291),
    ],
)
def test_presets_have_the_published_means(name: str, key: str, mean: float) -> None:
    assert getattr(load_preset(name), key).mean() == pytest.approx(mean, rel=0.05)


def test_rag_retrieves_what_was_published() -> None:
    retrieved = load_preset("rag").retrieved
    assert retrieved is not None
    assert retrieved.mean_tokens() == pytest.approx(1246.7, rel=0.01)


def test_internal_chat_has_prompts_as_long_as_published() -> None:
    population = load_preset("internal-chat")
    prompt = equilibrium(population, UNBOUNDED).context - population.output_tokens.mean()
    assert prompt == pytest.approx(1155, rel=0.02)


def test_chat_has_the_published_figures() -> None:
    u = (np.arange(100_000) + 0.5) / 100_000
    turns = RoundedUp(inner=CHAT.turns).quantile(u)
    assert turns.mean() == pytest.approx(2.54, abs=0.01)
    assert (turns > 1).mean() == pytest.approx(0.41, abs=0.005)
    assert (turns > 10).mean() == pytest.approx(0.037, abs=0.001)
    assert CHAT.user_tokens.mean() == pytest.approx(295.58, rel=0.01)
    assert CHAT.output_tokens.mean() == pytest.approx(441.34, rel=0.01)
    assert CHAT.think_time_s.mean() == pytest.approx(84.0, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"turn": 3}, "no key 'turn'; did you mean 'turns'?"),
        ({"user_tokens": None}, "'user_tokens' is missing; give it"),
        ({"system_prompt": -1}, "system_prompt is -1; it must be a whole number of tokens, at least 0"),
        ({"system_prompt": {"tokens": 1.5}}, "system_prompt.tokens is 1.5; it must be a whole number of tokens"),
        ({"system_prompt": {"token": 1}}, "no key 'token' in system_prompt; did you mean 'tokens'?"),
        ({"title": 4}, "title is 4; it must be text"),
        ({"turns": 1e300}, "turns is 1e+300; it must be a number from 0 to 2,000,000,000, or a table"),
        ({"turns": {"kind": "lognormal", "median": 3, "sigma": 1e3}}, "turns.sigma is 1000.0; it must be"),
        ({"output_tokens": {"kind": "lognormal", "mean": True, "standard_deviation": 1}}, "output_tokens.mean is true"),
        ({"think_time_s": "soon"}, "think_time_s is 'soon'; it must be"),
    ],
)
def test_a_mistake_in_a_population_file_is_told_with_its_place(changes: dict[str, object], message: str) -> None:
    tables = {key: value for key, value in (BARE | changes).items() if value is not None}
    with pytest.raises(InputError) as caught:
        population_from_mapping(tables, name="mine", file="mine.toml")
    assert f"mine.toml: {message}" in str(caught.value)
    with pytest.raises(InputError, match=r"^workload 'mine': "):
        population_from_mapping(tables, name="mine")


@pytest.mark.parametrize(
    "turns",
    [
        1e9,
        {"kind": "geometric", "mean": 1e6},
        {"kind": "lognormal", "median": 1e4, "sigma": 1},
        {"kind": "empirical", "samples": [1, 20_000]},
        {"kind": "lognormal", "median": 1, "sigma": 10, "minimum": 2},
    ],
)
def test_conversations_without_end_are_refused_at_once(turns: object) -> None:
    started_s = time.monotonic()
    with pytest.raises(InputError, match=r"a maximum of at most 10,000 \(limit turns; --limit turns=N raises it\)"):
        population_from_mapping(BARE | {"turns": turns}, name="mine")
    assert time.monotonic() - started_s < 1
    with pytest.raises(InputError, match="limit turns"):
        replace(CHAT, turns=parse_distribution(turns))


@pytest.mark.slow
def test_a_maximum_of_turns_or_a_raised_limit_is_the_remedy() -> None:
    long = {"kind": "lognormal", "median": 1e4, "sigma": 1}
    population_from_mapping(BARE | {"turns": long | {"maximum": 50}}, name="mine").draw(5, 2, 1, 4096).validate()
    with limits_raised(turns=20_000):
        table = population_from_mapping(BARE | {"turns": 12_000}, name="mine").draw(2, 2, 1, 4096)
    table.validate()


def test_no_user_is_met_in_a_conversation_beyond_the_limit() -> None:
    """However heavy the tail: what is drawn before the start stays below what was checked."""
    heavy = Lognormal(median=1, sigma=1.3)
    checked = size_biased_quantile(RoundedUp(inner=heavy), np.array([1 - 1e-6]))[0]
    assert met_turns(heavy, np.array([1 - 2**-53, 1.0])).max() <= checked


def test_a_population_of_bare_numbers_is_exact() -> None:
    table = population_from_mapping(BARE, name="mine").draw(1, 4, 1, 1000, stationary_start=False)
    assert table.prompt_tokens.tolist() == [15, 45, 15, 45]
    assert table.arrival_s[0] == 3
    assert table.think_s.tolist() == [0, 3, 3, 3]


def test_the_users_of_chat_stay_who_they_are() -> None:
    """Published figures rest on these users: another draw of them has to be meant."""
    digest = hashlib.sha256()
    for users, turns, seed, limit in ((300, 12, 1, 600), (2000, 60, 0, 131_072), (5, 200, 7, 4096)):
        table = CHAT.draw(users, turns, seed, limit)
        for column in (table.prompt_tokens, table.output_tokens, table.span_content, table.span_end):
            digest.update(column.tobytes())
    assert digest.hexdigest()[:16] == "bd3fcbd10b0a1805"


def simply_drawn(population: Population, seed: int, user: int, num_turns: int, room: int) -> list[tuple[int, int, int]]:
    """Prompt beside the system prompt, answer and conversation of a user's turns, one by one from numpy's streams."""

    def u(*stream_of: str | int) -> np.ndarray:
        return stream(seed, *stream_of).random(user + 1)[user:]  # type: ignore[arg-type]

    def turn(streams: Sequence[tuple[str | int, ...]]) -> tuple[int, int, int]:
        user_u, output_u, turns_u = (u(*each) for each in streams)
        asked = token_counts(population.user_tokens, user_u), token_counts(population.output_tokens, output_u)
        message, answer = fitted(*asked, room)
        return int(message[0]), int(answer[0]), int(whole_turns(population.turns, turns_u)[0])

    left = int(met_turns(population.turns, u("start", 0))[0])
    history, been, talk, rows = 0, int(u("start", 1)[0] * left), 0, []
    before = [[("history", k, part) for part in range(3)] for k in range(been + BURN_IN_TURNS)]
    later = [[(name, k) for name in ("user_tokens", "output_tokens", "turns")] for k in range(num_turns)]
    for place, streams in enumerate([*before, *later]):
        if place == len(before):
            talk = 0 if left else -1
        message, answer, new = turn(streams)
        if left == 0 or history + message + answer > room:
            history, left, talk = 0, new, talk + 1
        left -= 1
        rows.append((history + message, answer, talk))
        history += message + answer
    return rows[len(before) :]


@pytest.mark.parametrize("num_users", [3, 1031])  # computed one by one, and looked up
@pytest.mark.parametrize("room", [300, 8192])
def test_users_are_those_that_are_drawn_turn_by_turn(num_users: int, room: int) -> None:
    limit = CHAT.system_prompt_tokens + room
    found = CHAT.sessions(num_users, 5, 4, limit)
    columns = (found.prompt_tokens - CHAT.system_prompt_tokens, found.output_tokens, found.conversation)
    for user in (0, 2, num_users // 2, num_users - 1):
        rows = [tuple(int(column[user, turn]) for column in columns) for turn in range(5)]
        assert rows == simply_drawn(CHAT, 4, user, 5, room)
    expected = CHAT.think_time_s.quantile(stream(4, "think_time", 3).random(num_users))
    np.testing.assert_array_equal(found.think_s[:, 3], expected)


@settings(max_examples=30)
@given(
    asked=st.tuples(st.integers(1, 30), st.integers(1, 40), st.integers(0, 2**32), st.just(131_072)),
    until_s=st.floats(0, 2000),
    name=st.sampled_from(["chat", "rag", "reasoning"]),
    stationary_start=st.booleans(),
)
def test_turns_that_cannot_come_need_not_be_drawn(
    asked: tuple[int, int, int, int], until_s: float, name: str, stationary_start: bool
) -> None:
    population = load_preset(name)
    whole = population.sessions(*asked, stationary_start=stationary_start)
    part = population.sessions(*asked, stationary_start=stationary_start, until_s=until_s)
    for earlier_s in (until_s, until_s / 2):
        expected, found = whole.table(earlier_s), part.table(earlier_s)
        for column in ("arrival_s", "follows", "think_s", "prompt_tokens", "output_tokens", "span_content", "span_end"):
            np.testing.assert_array_equal(getattr(found, column), getattr(expected, column))
        np.testing.assert_array_equal(part.opens(earlier_s), whole.opens(earlier_s))
    met, met_of_part = (each.met_later(until_s / 2, NO_TIME) for each in (whole, part))
    np.testing.assert_array_equal(met_of_part.table(until_s / 2).prompt_tokens, met.table(until_s / 2).prompt_tokens)
