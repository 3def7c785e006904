"""A model fitted to a trace draws requests as the trace's, and holds none of them."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.reading import InputError
from tests.workloads.trace_files import write
from workloads.arrivals import MarkovModulated
from workloads.description.arrivals import counts
from workloads.fitted.cascade import fit_cascade
from workloads.fitted.fitted_file import fitted_text
from workloads.fitted.fitted_trace import FittedTrace, arranged
from workloads.fitted.fitting import fit_trace
from workloads.fitted.goodness import _effect, goodness
from workloads.fitted.marginals import FEWEST, binned
from workloads.fitted.prefix_tree import grow_prefixes
from workloads.fitted.serial import Serial
from workloads.fitted.sharing import latest_sharing
from workloads.load import load_fitted, load_preset, load_workload
from workloads.requests import OPEN_END, RequestTable, independent_requests
from workloads.traces.trace import Trace

RNG = np.random.default_rng(5)


def trace(table: RequestTable, block_size: int | None = None) -> Trace:
    return Trace(name="t", format="test", table=table, source="test", block_size=block_size)


def lone_requests(n: int = 3000) -> RequestTable:
    prompt = np.rint(RNG.lognormal(6, 1, n)) + 1
    return independent_requests(
        arrival_s=np.cumsum(RNG.exponential(0.5, n)),
        prompt_tokens=prompt,
        output_tokens=np.rint(prompt**0.5 * RNG.lognormal(0, 0.3, n)) + 1,
    )


def conversations() -> RequestTable:
    """Users of the chat preset at their own times, nobody waiting for answers."""
    return load_preset("chat").draw(100, 20, 3, 8192)


@given(st.integers(FEWEST, 2000), st.sampled_from([1, 2, 10, 100, 10**6]), st.integers(0, 10**6))
def test_each_value_is_a_mean_of_ten_requests_and_the_mean_of_all_stays(count: int, most: int, seed: int) -> None:
    values = np.random.default_rng(seed).integers(1, most + 1, count)
    found = binned(values)
    assert len(found.values) <= 128
    assert min(found.probabilities) * len(values) >= FEWEST - 1e-3
    assert found.mean() == pytest.approx(np.mean(values), rel=1e-5)


@given(st.integers(0, 20))
def test_the_shortest_and_the_longest_stay_as_frequent_as_they_are(seed: int) -> None:
    """A bin that holds answers of 1 to 3 tokens would have others miss a TPOT limit."""
    rng = np.random.default_rng(seed)
    values = np.concatenate([np.repeat([1, 3, 17], [60, 200, 90]), np.rint(rng.lognormal(5, 1.2, 8000)).clip(1)])
    drawn = np.rint(binned(values).quantile((np.arange(len(values)) + 0.5) / len(values)))
    for least in (1, 2, 3, 5):
        assert (drawn <= least).mean() == pytest.approx((values <= least).mean(), rel=0.12, abs=0.002)
    assert np.sort(drawn)[-100:].mean() == pytest.approx(np.sort(values)[-100:].mean(), rel=0.01)


def test_a_limit_on_prompt_and_answer_together_is_kept() -> None:
    """Documents as long as the context leave little room: no normal copula has that."""
    prompt = RNG.integers(500, 4000, 20_000)
    answer = np.minimum(RNG.lognormal(5.5, 1.0, 20_000).astype(int) + 1, 4096 - prompt)
    together = independent_requests(
        arrival_s=np.cumsum(RNG.exponential(1.0, 20_000)), prompt_tokens=prompt, output_tokens=answer
    )
    drawn = fit_trace(trace(together)).draw()
    assert (drawn.prompt_tokens + drawn.output_tokens).max() == 4096
    assert (prompt + RNG.permutation(answer)).max() > 6000
    for low, high in ((500, 1000), (2000, 3000), (3500, 4000)):
        of_trace, of_model = (
            table.output_tokens[(table.prompt_tokens >= low) & (table.prompt_tokens < high)]
            for table in (together, drawn)
        )
        assert of_model.mean() == pytest.approx(of_trace.mean(), rel=0.05)


def test_arrivals_keep_their_number_in_each_window_and_their_bursts_within() -> None:
    process = MarkovModulated(factor=8, share=0.1, length_s=3)
    times = process.times(20_000, 1, 10.0)
    cascade = fit_cascade(times - times[0])
    drawn = cascade.times(20_000, 20_000, np.random.default_rng(1))
    assert (np.diff(drawn) >= 0).all()
    for width in (1, 10, 60):
        trace, model = (found.var() / found.mean() for found in (counts(times, width), counts(drawn, width)))
        assert model == pytest.approx(trace, rel=0.35)


def test_poisson_arrivals_are_uneven_by_chance_alone() -> None:
    cascade = fit_cascade(np.cumsum(RNG.exponential(1.0, 20_000)))
    assert max(cascade.unevenness[:8]) < 0.02
    assert cascade.tick_s == 0


def test_ticks_stay_ticks() -> None:
    times = np.floor(np.cumsum(RNG.exponential(0.3, 5000)) / 3) * 3
    cascade = fit_cascade(times)
    assert cascade.tick_s == 3
    assert not (cascade.times(5000, 5000, RNG) % 3).any()


@pytest.mark.slow
def test_requests_that_come_at_once_are_drawn_at_once() -> None:
    table = independent_requests(arrival_s=np.zeros(200), prompt_tokens=np.full(200, 9), output_tokens=np.full(200, 2))
    drawn = fit_trace(trace(table)).draw()
    assert not drawn.arrival_s.any()
    assert (drawn.prompt_tokens == 9).all()


def test_a_draw_has_the_trace_s_lengths_and_their_dependence() -> None:
    table = lone_requests()
    found = goodness(trace(table), fit_trace(trace(table)), 16, ())
    for distance in found.distances.values():
        assert distance.ks < 0.04
    one, other = (each.dependence.rank_correlation for each in (found.trace, found.model))
    assert other == pytest.approx(one, abs=0.05)


def test_windows_have_the_trace_s_mean_lengths() -> None:
    n = 4000
    table = independent_requests(
        arrival_s=np.arange(n) * 1.0,
        prompt_tokens=np.where(np.arange(n) < n / 2, 100, 300) + RNG.integers(0, 50, n),
        output_tokens=np.full(n, 5),
    )
    drawn = fit_trace(trace(table)).draw()
    first, last = np.split(drawn.prompt_tokens[np.argsort(drawn.arrival_s)], 2)
    assert first.mean() == pytest.approx(table.prompt_tokens[: n // 2].mean(), rel=0.1)
    assert last.mean() == pytest.approx(table.prompt_tokens[n // 2 :].mean(), rel=0.1)


def test_neighbours_are_as_alike_as_in_the_trace() -> None:
    n, slow = 4000, Serial(share=0.8, decay=0.7).scores(4000, RNG)
    table = independent_requests(
        arrival_s=np.arange(n) * 1.0, prompt_tokens=np.rint(np.exp(6 + slow)) + 1, output_tokens=np.full(n, 5)
    )
    model = fit_trace(trace(table))
    assert model.serial.share == pytest.approx(0.8, abs=0.1)
    drawn = np.log(model.draw().prompt_tokens)
    for lag in (1, 3):
        one, other = (np.corrcoef(found[lag:], found[:-lag])[0, 1] for found in (np.log(table.prompt_tokens), drawn))
        assert other == pytest.approx(one, abs=0.08)


@pytest.mark.slow
def test_no_prompt_is_longer_than_the_trace_s_longest() -> None:
    table = conversations()
    model = fit_trace(trace(table))
    assert model.draw(5000).prompt_tokens.max() <= model.longest_prompt <= table.prompt_tokens.max()


def test_arranging_keeps_every_request() -> None:
    values, window = RNG.random((2, 500)), RNG.integers(0, 5, 500)
    order = arranged(values, window, RNG.random((2, 5)), RNG)
    assert sorted(order.tolist()) == list(range(500))


def test_the_latest_request_with_the_longest_common_prefix_is_found() -> None:
    table = RequestTable(
        arrival_s=np.arange(4.0),
        follows=np.full(4, -1),
        think_s=np.zeros(4),
        prompt_tokens=np.array([30, 40, 25, 60], np.int32),
        output_tokens=np.full(4, 5, np.int32),
        priority=np.zeros(4, np.int32),
        span_start=np.array([0, 1, 3, 5]),
        span_count=np.array([1, 2, 2, 3], np.int32),
        span_content=np.array([7, 7, 8, 7, 9, 7, 8, 10]),
        span_end=np.array([OPEN_END, 20, OPEN_END, 10, OPEN_END, 20, 45, OPEN_END], np.int32),
    )
    found = latest_sharing(table, np.arange(4))
    assert found.before.tolist() == [-1, 0, 1, 1]
    assert found.shared.tolist() == [0, 20, 10, 45]


def test_prefixes_grow_to_what_was_asked_for() -> None:
    n = 2000
    lag, total = RNG.geometric(0.02, n), RNG.integers(100, 2000, n)
    shared = np.minimum(np.where(RNG.random(n) < 0.7, RNG.integers(0, 1000, n), 0), total - 1)
    tree = grow_prefixes(lag, shared, total, RNG.random(n) < 0.3)
    table = RequestTable(
        arrival_s=np.arange(float(n)),
        follows=np.full(n, -1),
        think_s=np.zeros(n),
        prompt_tokens=tree.total.astype(np.int32) - 1,
        output_tokens=np.ones(n, np.int32),
        priority=np.zeros(n, np.int32),
        span_start=tree.span_start,
        span_count=tree.span_count,
        span_content=tree.span_content,
        span_end=tree.span_end,
    )
    table.validate()
    found = latest_sharing(table, np.arange(n))
    np.testing.assert_array_equal(found.shared, tree.shared)
    assert (np.abs(tree.shared - shared) <= 0.03 * shared).mean() > 0.95
    sharing = found.before >= 0
    distances = (np.arange(n) - found.before)[sharing]
    assert np.median(distances) == pytest.approx(np.median(lag), rel=0.3)


def test_what_prefix_caches_find_is_the_trace_s() -> None:
    table = conversations()
    by_turn = np.arange(table.num_requests).reshape(-1, 20).T.ravel()
    at_once = independent_requests(
        arrival_s=np.arange(table.num_requests),
        prompt_tokens=table.prompt_tokens[by_turn],
        output_tokens=table.output_tokens[by_turn],
    )
    spans = {name: getattr(table, name)[by_turn] for name in ("span_start", "span_count")}
    spans |= {name: getattr(table, name) for name in ("span_content", "span_end")}
    recorded = RequestTable(**{**vars(at_once), **spans})
    drawn = fit_trace(trace(recorded)).draw()
    drawn.validate()
    one, other = (latest_sharing(found, np.arange(found.num_requests)) for found in (recorded, drawn))
    assert other.shared.sum() == pytest.approx(one.shared.sum(), rel=0.05)
    for found in (one, other):
        assert 90 < np.median((np.arange(len(found.before)) - found.before)[found.shared > 512]) < 110


def test_sessions_have_the_trace_s_turns_and_think_times() -> None:
    table = conversations()
    drawn = fit_trace(trace(table)).draw()
    drawn.validate()
    assert drawn.num_requests == pytest.approx(table.num_requests, rel=0.02)
    follow = drawn.follows >= 0
    assert drawn.think_s[follow].mean() == pytest.approx(table.think_s[table.follows >= 0].mean(), rel=0.02)


def fitted(folder: Path) -> tuple[FittedTrace, Path]:
    model = fit_trace(trace(conversations(), block_size=16))
    return model, write(folder, "m.toml", fitted_text(model))


def test_a_file_holds_the_whole_model(tmp_path: Path) -> None:
    model, path = fitted(tmp_path)
    again = load_fitted(path)
    assert again is not None
    assert fitted_text(again) == path.read_text()
    np.testing.assert_array_equal(model.draw(500, 3).prompt_tokens, again.draw(500, 3).prompt_tokens)
    assert len(path.read_bytes()) < 50_000


def test_a_model_is_a_workload_of_any_number_of_requests(tmp_path: Path) -> None:
    _, path = fitted(tmp_path)
    for n in (1, 100, 5000):
        found = load_workload(path, num_requests=n)
        assert isinstance(found, Trace)
        assert found.num_requests == pytest.approx(n, rel=0.1, abs=20)
        found.table.validate()


def test_no_number_of_the_file_is_one_request_s() -> None:
    table = lone_requests()
    table.prompt_tokens[17] = 987_654
    text = fitted_text(fit_trace(trace(table)))
    assert "987654" not in text
    values = fit_trace(trace(table)).kinds["new"].copula.marginals["new_tokens"].values
    assert values[-1] < 987_654 / 5


def test_a_window_s_count_is_exact_and_its_means_are_those_of_ten_requests_or_more() -> None:
    table = lone_requests(200)
    table.arrival_s[:] = np.concatenate([np.linspace(0, 50, 199), [100]])  # four windows: 100, 99, 0, 1
    model, prompt = fit_trace(trace(table)), table.prompt_tokens
    np.testing.assert_allclose(np.array(model.cascade.windows) * 200, [100, 99, 0, 1], atol=1e-3)
    assert model.means["new_tokens"] == pytest.approx([prompt[:100].mean(), *[prompt[100:].mean()] * 3], abs=0.01)


def sessions_of(turns: list[int]) -> RequestTable:
    n, later = sum(turns), np.ones(sum(turns), bool)
    later[np.cumsum([0, *turns[:-1]])] = False
    lone = independent_requests(
        arrival_s=np.arange(n) * 1.0, prompt_tokens=np.arange(n) + 900, output_tokens=np.full(n, 5)
    )
    changed = {"follows": np.where(later, np.arange(n) - 1, -1), "arrival_s": np.where(later, np.nan, lone.arrival_s)}
    return replace(lone, **changed, think_s=np.where(later, 3.0, 0.0))


def test_later_turns_are_left_out_where_fewer_than_ten_requests_are_such_and_that_is_told() -> None:
    for later, told in ((9, True), (10, False)):
        few = trace(sessions_of([2] * later + [1] * 100))
        model = fit_trace(few)
        assert (model.turns is None) == told
        model.draw().validate()
        said = "Later turns of sessions: the trace has fewer than 10." in goodness(few, model, 16, ()).not_held
        assert said == told


def test_kinds_of_few_requests_are_taken_together_and_no_token_is_lost() -> None:
    table, first = sessions_of([4] * 40), 4 * np.arange(40)
    table.span_content[first[:20]] = 0  # 19 begin like an earlier one, 21 do not: too few for two kinds
    (kind,) = fit_trace(trace(table)).kinds.values()
    means = {name: marginal.mean() for name, marginal in kind.copula.marginals.items()}
    assert means["shared_tokens"] > 300
    assert means["shared_tokens"] + means["new_tokens"] == pytest.approx(table.prompt_tokens[first].mean(), rel=1e-4)


def test_few_requests_or_sessions_are_not_fitted() -> None:
    with pytest.raises(InputError, match="has 99 requests; a fit needs at least 100"):
        fit_trace(trace(lone_requests(99)))
    with pytest.raises(InputError, match="has 29 sessions; a fit needs at least 30"):
        fit_trace(trace(sessions_of([5] * 29)))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema_version = 1", "schema_version = 2", "fitted_trace.schema_version is 2; it must be one of 1"),
        ("tick_s = ", "tack_s = ", "no key 'tack_s' in arrivals; did you mean 'tick_s'?"),
        ("share = 1.0", "share = 0.0", "all shares of arrivals.windows or of kinds are 0"),
        ("windows = [", "windows = [0.1, ", "means.new_tokens has not 33 numbers, one for each of arrivals.windows"),
        ("correlations = [[", "correlations = [[0.1, ", "correlations is no symmetric matrix of"),
        (
            "num_requests = 2000",
            "num_requests = 0",
            "num_requests is 0; it must be a whole number",
        ),
        ("new_tokens = {", "old_tokens = {", "marginals has old_tokens, output_tokens"),
        ("answers = [", "answers = [[1, 2],", "kinds.new.answers is no table of 16 rows of 16 counts"),
        ("answers = [\n  [", "answers = [\n  [-1, ", "it must be a whole number, at least 0"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, old: str, new: str, message: str) -> None:
    model = fit_trace(trace(lone_requests(2000)))
    text = fitted_text(model)
    assert old in text
    with pytest.raises(InputError) as caught:
        load_fitted(write(tmp_path, "m.toml", text.replace(old, new)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("trace", "model", "said"),
    [
        (0.149, 0.204, "6% fewer prompt tokens are computed, and users are overestimated"),
        (0.5, 0.4, "20% more prompt tokens are computed, and users are underestimated"),
        (1.0, 0.9, "users are underestimated"),
    ],
)
def test_other_prefix_hits_are_said_with_what_they_do_to_answers(trace: float, model: float, said: str) -> None:
    assert _effect(trace, model) == said
