"""Retrieved chunks and thinking: what prompts hold, what requests share, beside a twin that writes every token."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from workloads.distributions import Distribution, Exponential, Fixed, Geometric, Uniform
from workloads.load import load_preset
from workloads.populations.draws import Draws
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.population_file import population_from_mapping
from workloads.populations.retrieval import Retrieval
from workloads.requests import OPEN_END, RequestTable
from workloads.traffic import changed
from workloads.traffic_changes import Amount

CHAT = load_preset("chat")
SMALL = Population(
    name="small",
    system_prompt_tokens=9,
    turns=Geometric(mean_value=3),
    user_tokens=Uniform(low=1, high=12),
    output_tokens=Uniform(low=1, high=20),
    think_time_s=Exponential(mean_value=20),
)
FEW = Retrieval(chunks=Uniform(low=0, high=3), chunk_tokens=7, distinct_chunks=3, zipf_exponent=1.0)
KEPT = replace(FEW, in_history=True)
FIRST = replace(FEW, place="after_system_prompt")
HALF = Uniform(low=0, high=0.9)
KINDS = {
    "thinking": replace(SMALL, thinking_share=HALF),
    "before the message": replace(SMALL, retrieved=FEW),
    "in the history": replace(SMALL, retrieved=KEPT),
    "after the system prompt": replace(SMALL, retrieved=FIRST),
    "thinking, before the message": replace(SMALL, retrieved=FEW, thinking_share=HALF),
    "thinking, in the history": replace(SMALL, retrieved=KEPT, thinking_share=HALF),
    "thinking, after the system prompt": replace(SMALL, retrieved=FIRST, thinking_share=HALF),
    "no system prompt": replace(SMALL, retrieved=FEW, thinking_share=HALF, system_prompt_tokens=0),
}
USERS, TURNS, ROOM, BLOCK = 12, 8, 120, 4


def written(population: Population) -> Iterator[tuple[list[object], int]]:
    """Every token of each row's prompt and answer, and how many are the prompt's: user by user, turn by turn."""
    draws = Draws(population, USERS, 3, ROOM)
    turns, retrieved = draws.turns(range(TURNS), np.full(USERS, TURNS, np.int32)), population.retrieved
    system: list[object] = [("system", i) for i in range(population.system_prompt_tokens)]
    for user in range(USERS):
        history: list[object] = []
        left = 0
        for k in range(TURNS):
            numbers = [each for each in turns.chunks[k, user] if each >= 0] if turns.chunks.size else []
            chunks = [("chunk", each, i) for each in numbers for i in range(retrieved.chunk_tokens if retrieved else 0)]
            message = [("user", user, k, i) for i in range(turns.added[k, user] - len(chunks))]
            answer = [("answer", user, k, i) for i in range(turns.output[k, user])]
            if left == 0 or len(history) + len(chunks) + len(message) + len(answer) > ROOM:
                history, left = [], turns.num_turns[k, user]
            left -= 1
            is_first = retrieved is not None and retrieved.place == "after_system_prompt"
            before = [*chunks, *history] if is_first else [*history, *chunks]
            yield [*system, *before, *message, *answer], len(system) + len(before) + len(message)
            thinking = turns.thinking[k, user] if turns.thinking.size else 0
            kept = chunks if retrieved is not None and retrieved.in_history else []
            history = [*history, *kept, *message, *answer[thinking:]]


def drawn(population: Population) -> RequestTable:
    limit = population.system_prompt_tokens + ROOM
    table = population.draw(USERS, TURNS, 3, limit, stationary_start=False)
    table.validate()
    return table


def blocks(table: RequestTable, row: int, length: int) -> list[int]:
    """The content id of the last token of each whole block."""
    spans = slice(table.span_start[row], table.span_start[row] + table.span_count[row])
    last = np.arange(BLOCK - 1, length, BLOCK)
    return list(table.span_content[spans][np.searchsorted(table.span_end[spans], last, side="right")])


def common(one: list[object], other: list[object]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("population", KINDS.values(), ids=KINDS)
def test_prompts_are_as_long_as_what_is_written(population: Population) -> None:
    table = drawn(population)
    for row, (tokens, prompt) in enumerate(written(population)):
        assert (table.prompt_tokens[row], table.prompt_tokens[row] + table.output_tokens[row]) == (prompt, len(tokens))


@pytest.mark.parametrize("population", [SMALL, *KINDS.values()], ids=["plain", *KINDS])
def test_requests_share_exactly_the_blocks_in_which_all_tokens_are_equal(population: Population) -> None:
    table = drawn(population)
    rows = [tokens for tokens, _ in written(population)]
    named = [blocks(table, row, len(tokens)) for row, tokens in enumerate(rows)]
    shared = 0
    for one, other in combinations(range(len(rows)), 2):
        found = common(named[one], named[other])  # type: ignore[arg-type]
        assert found == common(rows[one], rows[other]) // BLOCK, (one, other)
        shared += found
    assert shared > 100


@pytest.mark.parametrize("population", KINDS.values(), ids=KINDS)
def test_a_stationary_start_gives_valid_tables_that_more_users_leave_as_they_are(population: Population) -> None:
    few, many = (population.draw(users, 5, 1, 100) for users in (20, 40))
    for table in (few, many):
        table.validate()
        assert (table.prompt_tokens + table.output_tokens <= 100).all()
    np.testing.assert_array_equal(few.prompt_tokens, many.prompt_tokens[:100])
    np.testing.assert_array_equal(few.span_content, many.span_content[: len(few.span_content)])


@pytest.mark.parametrize("exponent", [0.0, 1.0])
def test_chunks_are_as_popular_as_zipf_says(exponent: float) -> None:
    found = replace(FEW, distinct_chunks=50, zipf_exponent=exponent).which(np.random.default_rng(1).random(200_000))
    weights = np.arange(1, 51) ** -exponent
    expected = weights / weights.sum()
    error = np.sqrt(expected * (1 - expected) / len(found))
    assert (np.abs(np.bincount(found, minlength=50) / len(found) - expected) < 5 * error).all()


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=50), st.integers(1, 300), st.floats(0, 5))
def test_a_chunk_is_the_first_whose_share_and_those_before_it_exceed_the_number(
    numbers: list[float], distinct: int, exponent: float
) -> None:
    cumulative = np.cumsum(np.arange(1, distinct + 1) ** -exponent)
    u = np.array([*numbers, *(cumulative[:-1] / cumulative[-1])[:50]])
    expected = np.minimum(np.searchsorted(cumulative / cumulative[-1], u, side="right"), distinct - 1)
    found = replace(FEW, distinct_chunks=distinct, zipf_exponent=exponent).which(u)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("context", [16_384, 24_576, 28_672])
def test_passages_that_fit_beside_most_conversations_are_all_there(context: int) -> None:
    """They filled half of the room at most: a context of 24K came out as 17K on a model that takes 41K."""
    long = changed(load_preset("rag"), {"context": Amount(value=float(context))})
    assert equilibrium(long, 40_960).context == pytest.approx(context, rel=0.01)


LONG = {
    "rag": replace(CHAT, retrieved=Retrieval(
        chunks=Uniform(low=1, high=8), chunk_tokens=300, distinct_chunks=1000, zipf_exponent=0.8)),
    "rag in the history": replace(CHAT, retrieved=Retrieval(
        chunks=Fixed(value=4), chunk_tokens=300, distinct_chunks=1000, zipf_exponent=0.8, in_history=True)),
    "reasoning": replace(CHAT, thinking_share=Uniform(low=0.4, high=1)),
    "both": replace(CHAT, thinking_share=Fixed(value=0.7), retrieved=Retrieval(
        chunks=Uniform(low=1, high=8), chunk_tokens=300, distinct_chunks=9, zipf_exponent=0.8)),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("population", LONG.values(), ids=LONG)
@pytest.mark.parametrize("max_model_len", [2048, 16_384])
def test_the_means_in_equilibrium_are_those_of_drawn_sessions(population: Population, max_model_len: int) -> None:
    users = 2000
    sessions = population.sessions(users, 30, 1, max_model_len)
    found = equilibrium(population, max_model_len)
    context = sessions.prompt_tokens + sessions.output_tokens
    for mean, values in ((found.context, context), (found.prompt_square, sessions.prompt_tokens.astype(float) ** 2)):
        by_user = values.mean(axis=1)
        error = by_user.std(ddof=1) / users**0.5
        assert abs(mean - by_user.mean()) < 4 * error + 2e-3 * mean
        assert error < 0.05 * mean, "too few draws to prove anything"


@pytest.mark.slow
@pytest.mark.parametrize("population", LONG.values(), ids=LONG)
def test_a_context_that_is_asked_for_is_the_mean(population: Population) -> None:
    found = changed(population, {"context": Amount(value=8192)})
    assert equilibrium(found, OPEN_END - 1).context == pytest.approx(8192, rel=5e-3)


def test_twice_the_chunks_are_twice_the_tokens() -> None:
    found = changed(LONG["rag"], {"retrieved": Amount(value=2, is_factor=True)}).retrieved
    plain = LONG["rag"].retrieved
    assert found is not None and plain is not None
    assert found.mean_tokens() == pytest.approx(2 * plain.mean_tokens(), rel=1e-2)
    with pytest.raises(InputError, match="workload 'chat' retrieves nothing; take one with a \\[retrieved\\] table"):
        changed(CHAT, {"retrieved": Amount(value=2, is_factor=True)})


def test_all_thinking_leaves_messages_alone_in_the_history() -> None:
    forgets = replace(SMALL, thinking_share=Fixed(value=1), user_tokens=Fixed(value=5), turns=Fixed(value=4))
    table = forgets.draw(3, 4, 1, 1000, stationary_start=False)
    assert table.prompt_tokens.reshape(3, 4).tolist() == [[14, 19, 24, 29]] * 3


def test_where_no_turn_retrieves_or_thinks_the_load_is_the_plain_one() -> None:
    none: Distribution = Fixed(value=0)
    plain, same = (
        SMALL.draw(20, 6, 1, 200),
        replace(SMALL, thinking_share=none, retrieved=replace(FEW, chunks=none)).draw(20, 6, 1, 200),
    )
    for name in ("arrival_s", "think_s", "prompt_tokens", "output_tokens"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(same, name))
    assert (same.span_end[same.span_start + same.span_count - 1] == OPEN_END).all()


FILE = {
    "system_prompt": 5, "turns": 2, "think_time_s": 3, "user_tokens": 10, "output_tokens": 20, "thinking_share": 0.5,
    "retrieved": {"chunks": 3, "chunk_tokens": 100, "distinct_chunks": 1000, "zipf_exponent": 0.7, "source": "made up"},
}  # fmt: skip


def test_a_file_says_what_is_retrieved_and_thought() -> None:
    found = population_from_mapping(FILE, name="mine")
    table = found.draw(1, 4, 1, 2000, stationary_start=False)
    assert table.prompt_tokens.tolist() == [315, 335, 315, 335]  # the second: 5 + 10 + 10 said before + 300 + 10


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"chunk_tokens": 0}, "retrieved.chunk_tokens is 0; it must be a whole number of tokens, 1 to 1,048,576"),
        ({"chunks": 100}, "retrieved: a turn may have 100 chunks; give chunks a maximum of at most 64"),
        ({"chunks": {"kind": "fixd"}}, "retrieved.chunks has no kind 'fixd'; did you mean 'fixed'?"),
        ({"place": "before"}, "retrieved.place is 'before'; it must be"),
        ({"place": "after_system_prompt", "in_history": True}, "replaced at each turn, so in_history must be false"),
        ({"zipf": 1}, "no key 'zipf' in retrieved; did you mean 'zipf_exponent'?"),
    ],
)
def test_a_mistake_in_what_is_retrieved_is_told(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        population_from_mapping(FILE | {"retrieved": FILE["retrieved"] | changes}, name="mine")  # type: ignore[operator]
    assert message in str(caught.value)


def test_a_share_of_thinking_beyond_1_is_refused() -> None:
    with pytest.raises(InputError, match="thinking_share goes beyond 1; give a share from 0 to 1, or maximum = 1"):
        population_from_mapping(FILE | {"thinking_share": {"kind": "exponential", "mean": 0.5}}, name="mine")
