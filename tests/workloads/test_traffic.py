"""Other traffic than a workload's own: laws of each change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from files.names import UnknownNameError
from files.reading import InputError
from headcount.inputs.reading.traffic import TrafficChange, read_traffic
from tests.workloads.populations.test_population import CHAT, SHORT
from workloads.distributions import (
    Bounded,
    Distribution,
    Empirical,
    Exponential,
    Fixed,
    Geometric,
    Lognormal,
    RoundedUp,
    Uniform,
)
from workloads.load import load_preset
from workloads.populations.derived import WithValue, scaled, stretched_turns
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.requests import OPEN_END, RequestTable, independent_requests
from workloads.traces.trace import Trace
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import CHANGES, Amount

UNBOUNDED = 2**30
U = np.linspace(0, 1, 2001, endpoint=False)
X2 = Amount(value=2, is_factor=True)
DISTRIBUTIONS: list[Distribution] = [
    Fixed(value=300),
    Uniform(low=10, high=500),
    Lognormal(median=50, sigma=1.2),
    Exponential(mean_value=40),
    Bounded(inner=Lognormal(median=50, sigma=1.2), minimum=1, maximum=400),
    Empirical(values=(1, 7, 900), probabilities=(0.5, 0.3, 0.2)),
]
TURNS: list[Distribution] = [
    CHAT.turns, Geometric(mean_value=4), Fixed(value=1), Fixed(value=7), Uniform(low=0.5, high=9),
]  # fmt: skip
some_distribution = st.sampled_from(DISTRIBUTIONS)


def numeric_mean(distribution: Distribution) -> float:
    edges = 1 - np.linspace(1, 0, 5_001) ** 3
    return float(np.diff(edges) @ distribution.quantile((edges[1:] + edges[:-1]) / 2))


def draw(population: Population) -> RequestTable:
    return population.draw(200, 8, 3, UNBOUNDED)


@settings(max_examples=20)
@given(distribution=some_distribution, factor=st.floats(0.01, 100))
def test_a_scaled_distribution_is_the_factor_times_each_draw(distribution: Distribution, factor: float) -> None:
    found = scaled(distribution, factor)
    assert found.mean() == pytest.approx(factor * distribution.mean(), rel=1e-12)
    assert found.quantile(U) == pytest.approx(factor * distribution.quantile(U), rel=1e-12)
    assert scaled(found, 1 / factor).mean() == pytest.approx(distribution.mean(), rel=1e-12)
    assert scaled(distribution, 1.0) is distribution


@settings(max_examples=20)
@given(distribution=some_distribution, value=st.floats(0, 2000), share=st.floats(0.001, 0.999))
@example(distribution=Empirical(values=(1, 7, 900), probabilities=(0.5, 0.3, 0.2)), value=2.0, share=1 / 3)
def test_a_value_put_in_moves_the_mean_exactly_and_keeps_quantiles_rising(
    distribution: Distribution, value: float, share: float
) -> None:
    found = WithValue(inner=distribution, value=value, share=share)
    assert found.mean() == pytest.approx((1 - share) * distribution.mean() + share * value, rel=1e-12)
    assert (np.diff(found.quantile(U)) >= -1e-9 * value).all()
    assert (found.quantile(U) == value).mean() >= share - 2e-3
    assert numeric_mean(found) == pytest.approx(found.mean(), rel=5e-3)


@given(turns=st.sampled_from(TURNS), factor=st.floats(0.05, 50))
def test_stretched_turns_are_whole_and_their_mean_is_exact(turns: Distribution, factor: float) -> None:
    mean = RoundedUp(inner=turns).mean()
    if factor * mean < 1:
        with pytest.raises(InputError, match="a conversation has at least 1 turn"):
            stretched_turns(turns, factor)
        return
    found = stretched_turns(turns, factor)
    assert found.mean() == pytest.approx(factor * mean, rel=1e-9)
    values = found.quantile(U)
    assert (values == np.rint(values)).all()
    assert (values >= 1).all()
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize("population", [CHAT, SHORT], ids=lambda p: p.name)
@pytest.mark.parametrize("name", ["context", "output", "think-time", "turns"])
def test_a_factor_of_1_leaves_every_draw_as_it_was(population: Population, name: str) -> None:
    before, after = draw(population), draw(changed(population, {name: Amount(value=1, is_factor=True)}))
    for column in ("arrival_s", "think_s", "prompt_tokens", "output_tokens", "span_content"):
        np.testing.assert_array_equal(getattr(after, column), getattr(before, column))


@pytest.mark.parametrize("factor", [0.8, 1.2, 2, 4])
def test_a_factor_on_the_context_is_one_on_the_mean_of_prompt_and_answer(factor: float) -> None:
    found = changed(CHAT, {"context": Amount(value=factor, is_factor=True)})
    now = equilibrium(CHAT, OPEN_END - 1).context
    assert equilibrium(found, OPEN_END - 1).context == pytest.approx(factor * now, rel=5e-3)
    assert replace(found, user_tokens=CHAT.user_tokens, asked_context=None, name=CHAT.name) == CHAT


def test_twice_the_context_lengthens_each_message_alike_and_nothing_else() -> None:
    alone = replace(CHAT, turns=Fixed(value=1), system_prompt_tokens=0)
    messages, answers = alone.user_tokens.mean(), alone.output_tokens.mean()
    longer = (2 * (messages + answers) - answers) / messages
    before, after = draw(alone), draw(changed(alone, {"context": X2}))
    assert np.abs(after.prompt_tokens / before.prompt_tokens - longer).max() <= longer  # rounding to whole tokens
    assert after.prompt_tokens.sum() == pytest.approx(longer * before.prompt_tokens.sum(), rel=5e-3)
    np.testing.assert_array_equal(after.output_tokens, before.output_tokens)
    np.testing.assert_array_equal(after.think_s, before.think_s)


def test_twice_the_output_and_think_time_double_theirs_alone() -> None:
    before, after = draw(CHAT), draw(changed(CHAT, {"output": X2, "think-time": X2}))
    assert np.abs(after.output_tokens - 2 * before.output_tokens).max() <= 1
    assert after.think_s == pytest.approx(2 * before.think_s)
    assert after.arrival_s == pytest.approx(2 * before.arrival_s, nan_ok=True)


@settings(max_examples=20)
@given(mean=st.floats(20, 5000))
def test_a_value_becomes_the_mean_with_the_shape_kept(mean: float) -> None:
    found = changed(CHAT, {"output": Amount(value=mean), "think-time": Amount(value=mean)})
    assert found.output_tokens.mean() == pytest.approx(mean)
    assert found.think_time_s.mean() == pytest.approx(mean)
    assert RoundedUp(inner=changed(CHAT, {"turns": Amount(value=5)}).turns).mean() == pytest.approx(5, rel=1e-3)


@pytest.mark.parametrize("tokens", [4096, 8192, 32768, 131072])
def test_a_context_in_tokens_becomes_the_mean_of_prompt_and_answer(tokens: int) -> None:
    found = changed(CHAT, {"context": Amount(value=tokens)})
    assert equilibrium(found, OPEN_END - 1).context == pytest.approx(tokens, rel=5e-3)
    assert found.output_tokens == CHAT.output_tokens
    with pytest.raises(InputError, match=r"context 400; prompt and answer have 3,6.. tokens on average, .* 2,3.. to"):
        changed(CHAT, {"context": Amount(value=400)})


@given(tokens=st.integers(3_000, 300_000))
@settings(max_examples=20)
def test_a_context_of_what_retrieves_is_made_by_its_passages_alone(tokens: int) -> None:
    rag = load_preset("rag")
    longer = changed(rag, {"context": Amount(value=tokens)})
    assert equilibrium(longer, OPEN_END - 1).context == pytest.approx(tokens, rel=0.01)
    assert replace(longer, retrieved=rag.retrieved, asked_context=None, name=rag.name) == rag


def test_a_share_of_long_prompts_is_that_share_of_the_messages() -> None:
    alone = replace(CHAT, turns=Fixed(value=1), system_prompt_tokens=0)
    long = Amount(value=32_768, share=0.1)
    table = changed(alone, {"long-prompts": long}).draw(2000, 10, 1, UNBOUNDED)
    assert (table.prompt_tokens == 32_768).mean() == pytest.approx(0.1, abs=0.01)
    every = changed(alone, {"long-prompts": Amount(value=500, share=1)}).draw(10, 3, 1, UNBOUNDED)
    assert (every.prompt_tokens == 500).all()


def test_the_order_in_which_changes_are_given_does_not_matter() -> None:
    asked = {"long-prompts": Amount(value=9000, share=0.2), "context": X2, "system-prompt": Amount(value=100)}
    assert changed(CHAT, asked) == changed(CHAT, dict(reversed(asked.items())))
    assert changed(CHAT, asked).name == "chat, context x2, system-prompt 100, long-prompts 20%:9000"
    assert changed(CHAT, {}) is CHAT


def test_the_system_prompt_is_scaled_or_replaced() -> None:
    assert changed(CHAT, {"system-prompt": X2}).system_prompt_tokens == 1024
    assert changed(CHAT, {"system-prompt": Amount(value=3000)}).system_prompt_tokens == 3000


def trace() -> Trace:
    table = independent_requests(
        arrival_s=[0, np.nan, 5], prompt_tokens=[100, 250, 30], output_tokens=[10, 20, 30], follows=[-1, 0, -1],
        think_s=[0, 8, 0],
    )  # fmt: skip
    table = replace(table, span_start=np.array([0, 0, 2]), span_count=np.array([2, 2, 1], np.int32))
    table = replace(table, span_content=np.array([0, 1, 2]), span_end=np.array([64, OPEN_END, OPEN_END], np.int32))
    return Trace(name="t", format="mooncake", table=table, source="made here")


def test_a_trace_scales_prompts_with_what_they_share_outputs_and_think_times() -> None:
    found = changed_trace(trace(), {"context": X2, "output": Amount(value=40), "think-time": Amount(value=4)})
    assert found.table.prompt_tokens.tolist() == [200, 500, 60]
    assert found.table.span_end.tolist() == [128, OPEN_END, OPEN_END]
    assert found.table.output_tokens.tolist() == [20, 40, 60]
    assert found.table.think_s.tolist() == [0, 4, 0]
    assert found.name == "t, context x2, output 40, think-time 4"
    assert found.table.arrival_s[2] == 5


def test_spans_that_rounding_makes_equal_stay_apart() -> None:
    ends = np.array([64, 65, 66, OPEN_END, 3, OPEN_END], np.int32)
    table = independent_requests(arrival_s=[0, 1], prompt_tokens=[100, 30], output_tokens=[10, 20])
    table = replace(table, span_start=np.array([0, 4]), span_count=np.array([4, 2], np.int32))
    table = replace(table, span_content=np.arange(6), span_end=ends)
    found = changed_trace(replace(trace(), table=table), {"context": Amount(value=0.1, is_factor=True)})
    assert found.table.span_end.tolist() == [6, 7, 8, OPEN_END, 1, OPEN_END]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"context": Amount(value=0, is_factor=True)}, "context x0; give x0.01 to x100"),
        (
            {"output": Amount(value=1e9)},
            "output 1,000,000,000 is x.* of the mean, .*; give 4.406 to 44,0.*, or x0.01 to x100",
        ),
        ({"turns": Amount(value=0.1, is_factor=True)}, "a conversation has at least 1 turn"),
        ({"turns": Amount(value=100_000)}, "turns 100,000 is x.* of the mean, .*; give .*, or x0.01 to x100"),
        ({"context": Amount(value=100, share=0.1)}, "give x2 or a value"),
        ({"long-prompts": X2}, "long-prompts=x2; give SHARE:TOKENS, such as 10%:32K"),
        ({"long-prompts": Amount(value=5, share=2)}, "the share must be above 0, at most 100%"),
        ({"system-prompt": Amount(value=1e10)}, "give 0 to 2,147,483,646"),
    ],
)
def test_a_wrong_change_is_one_clear_error(asked: dict[str, Amount], said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed(CHAT, asked)
    with pytest.raises(UnknownNameError, match="no change of traffic 'contxt'; did you mean 'context'"):
        changed(CHAT, {"contxt": X2})


def test_what_a_trace_does_not_have_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"turns cannot be changed in a trace, .*; a trace takes context, output, think"
    ):
        changed_trace(trace(), {"turns": X2})
    alone = replace(trace(), table=independent_requests(arrival_s=[0], prompt_tokens=[5], output_tokens=[5]))
    with pytest.raises(InputError, match="trace 't' has no think times to change"):
        changed_trace(alone, {"think-time": X2})


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("context=x2", X2),
        ("Context=X0.5", Amount(value=0.5, is_factor=True)),
        ("context=8K", Amount(value=8192)),
        ("output=600", Amount(value=600)),
        ("think_time=30s", Amount(value=30.0)),
        ("turns=3.5", Amount(value=3.5)),
        ("system-prompt=2k", Amount(value=2000)),
        ("long-prompts=10%:32K", Amount(value=32_768, share=0.1)),
        ("retrieved-in-history=true", Amount(value=1, is_switch=True)),
        ("retrieved-in-history=Off", Amount(value=0, is_switch=True)),
    ],
)
def test_a_change_reads_as_people_write_it(text: str, amount: Amount) -> None:
    assert TrafficChange().read(text) == (text.partition("=")[0].lower().replace("_", "-"), amount)
    assert TrafficChange().read(TrafficChange().read(text))[1] == amount


def test_changes_come_as_one_text_or_by_name() -> None:
    asked = {"context": X2, "long-prompts": Amount(value=32_768, share=0.1)}
    assert read_traffic("context=x2,long-prompts=10%:32K") == asked
    assert read_traffic({"context": "x2", "long-prompts": "10%:32K"}) == asked
    assert read_traffic(tuple(asked.items())) == asked
    assert read_traffic({"retrieved-in-history": True}) == read_traffic("retrieved-in-history=true")
    assert read_traffic(None) == {}
    with pytest.raises(ValueError, match="context is given twice in one traffic; leave out one of them"):
        read_traffic("context=x2,context=x3")


@pytest.mark.parametrize(
    "text",
    ["context", "context=", "=x2", "context=xx", "context=x", "context=-1", "turns=0.5", "turns=nan", "think-time=30",
     "long-prompts=10%", "long-prompts=32K", "long-prompts=0%:32K", "contxt=x2", "context=x1e3",
     "retrieved-in-history=x2", "retrieved-in-history=maybe"],
)  # fmt: skip
def test_what_is_no_change_of_traffic_is_refused_with_its_name(text: str) -> None:
    with pytest.raises(ValueError, match=r"; (it takes|give|did you mean|known)"):
        TrafficChange().read(text)


def test_chunks_are_kept_in_the_history_or_dropped_from_it() -> None:
    """Kept, every later prompt of a conversation has the chunks of all turns before."""
    rag = load_preset("rag")
    kept = changed(rag, read_traffic("retrieved-in-history=true"))
    assert kept.retrieved is not None and rag.retrieved is not None
    assert kept.retrieved == replace(rag.retrieved, in_history=True, place="before_message")
    assert kept.name == "rag, retrieved-in-history true"
    dropped = changed(kept, read_traffic("retrieved-in-history=off"))
    assert dropped.retrieved == replace(kept.retrieved, in_history=False)
    assert changed(rag, read_traffic("retrieved-in-history=false")).retrieved == rag.retrieved
    dropped_tokens, kept_tokens = (each.draw(200, 20, 1, UNBOUNDED).prompt_tokens.mean() for each in (rag, kept))
    assert kept_tokens > 1.2 * dropped_tokens


def test_a_context_that_is_asked_for_has_the_kept_chunks_in_it() -> None:
    asked = read_traffic("context=8K,retrieved-in-history=true")
    table = changed(load_preset("rag"), asked).draw(2000, 20, 1, UNBOUNDED)
    assert float((table.prompt_tokens + table.output_tokens).mean()) == pytest.approx(8192, rel=0.05)


def test_only_a_workload_that_retrieves_has_chunks_to_keep() -> None:
    with pytest.raises(ValueError, match=r"workload 'chat' retrieves nothing; take one with a \[retrieved\] table"):
        changed(load_preset("chat"), read_traffic("retrieved-in-history=true"))


def test_every_change_says_what_it_does() -> None:
    for change in CHANGES.values():
        assert change.meaning.endswith(".")
        assert change.unit in ("tokens", "s", "turns", "chunks", "retries") or change.form == "switch"
