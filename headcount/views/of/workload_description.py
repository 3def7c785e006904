"""A workload's description as lines and tables."""

from collections.abc import Mapping
from typing import Final

import numpy as np

from headcount.queries.report_data.percentiles import PERCENTILES, percentiles_json, rounded
from headcount.queries.workloads.describe import DescribeResult, exact_means
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, percent, seconds, short
from headcount.views.summary.summary import Summary
from workloads.description.arrivals import Arrivals, counts, earliest_arrival_s
from workloads.description.description import Description
from workloads.description.lengths import Spread
from workloads.description.reuse import PrefixReuse
from workloads.populations.population import Population

MOST_WINDOWS: Final = 120
MOST_SIZES: Final = 60
_SPREAD = ("mean", "p50", "p90", "p95", "p99", "max", "cv")


def span(found: Arrivals | None) -> str:
    """Such as ` in 58.4 min`."""
    if found is None:
        return " without times"
    for size_s, unit in ((86_400, "days"), (3600, "h"), (60, "min")):
        if found.duration_s >= 2 * size_s:
            return f" in {found.duration_s / size_s:,.1f} {unit}"
    return f" in {seconds(found.duration_s)}"


def arrival_blocks(found: Arrivals) -> list[Block]:
    """Rates and bursts by length of the window, and by hour where a day is there."""
    rows = [
        (f"  {width} s", f"{w.peak_per_s:,.3g}", f"{w.peak_per_s / found.mean_per_s:.2f}", short(w.variance_over_mean))
        for width, w in found.windows.items()
    ]
    blocks: list[Block] = [
        Line(
            f": {found.mean_per_s:,.3g} requests/s on average; gaps: CV {found.gap_cv:.2f} (Poisson: 1), "
            f"p50 {seconds(found.gap_p50_s)}, p99 {seconds(found.gap_p99_s)}",
            bold="Arrivals",
        )
    ]
    if rows:
        blocks.append(Table(columns=("  window", "peak, requests/s", "peak / mean", "variance / mean"), rows=rows))
    if found.hourly_per_s:
        hours = {f"{hour}": rate for hour, rate in enumerate(found.hourly_per_s)}
        blocks.append(_bars(("  hour from the start", "requests/s"), hours, {n: short(r) for n, r in hours.items()}))
    return blocks


def length_blocks(found: Description, exact: Mapping[str, float]) -> list[Block]:
    """Lengths, turns and think times, and how prompts and answers go together."""
    named = {"prompt tokens": found.prompt_tokens, "answer tokens": found.output_tokens}
    if found.sessions is not None:
        think_s = found.sessions.think_s
        named |= {"turns": found.sessions.turns} | ({} if think_s is None else {"think time, s": think_s})
    together = found.dependence
    blocks: list[Block] = [
        Table(columns=("  ", *_SPREAD[:-1], "CV"), rows=[_row(name, each) for name, each in named.items()]),
        Line(
            f"  correlation of prompt and answer tokens {_share(together.correlation)}, of their ranks "
            f"{_share(together.rank_correlation)}"
        ),
    ]
    if found.sessions is not None and found.sessions.num_sessions is not None:
        share = percent(round(found.sessions.multi_turn_share, 3))
        blocks.append(Line(f"  {found.sessions.num_sessions:,} sessions, {share} of them with more than one turn"))
    if exact:
        told = ", ".join(f"{name.removesuffix('_s').replace('_', ' ')} {short(mean)}" for name, mean in exact.items())
        blocks.append(Line(f"  exact means: {told} s"))
    return blocks


def reuse_blocks(reuse: PrefixReuse, hit_rates: Mapping[int, float]) -> list[Block]:
    """Hit rates by size of the cache."""
    rates = {f"{size:,}": rate for size, rate in hit_rates.items()} | {"unbounded": reuse.ideal_hit_rate}
    return [
        Line(
            f": share of {reuse.num_blocks:,} prompt blocks of {reuse.block_size:,} tokens that are in it",
            bold="Prefix cache, LRU",
        ),
        _bars(("  cache, tokens", "share"), rates, {name: f"{rate:.1%}" for name, rate in rates.items()}),
    ]


def _bars(columns: tuple[str, str], values: Mapping[str, float], shown: Mapping[str, str]) -> Table:
    most = max(values.values()) or 1.0
    return Table(
        columns=columns,
        rows=[(f"  {name}", shown[name]) for name in values],
        bars=[(0.0, value / most) for value in values.values()],
    )


def _row(name: str, found: Spread) -> tuple[str, ...]:
    values = (getattr(found, key) for key in _SPREAD[:-1])
    return (
        f"  {name}",
        *(f"{value:,.0f}" if found.mean >= 100 else short(value) for value in values),
        f"{found.cv:.2f}",
    )


def _share(value: float) -> str:
    """Two digits, and no -0.00."""
    return f"{round(value, 2) + 0.0:.2f}"


def summary(answer: DescribeResult) -> Summary:
    found = answer.description
    rate = f" at {found.arrivals.mean_per_s:,.3g} requests/s" if found.arrivals else ""
    return Summary(
        question=f"What is in {answer.workload.name}?",
        answer=f"{counted(found.table.num_requests, 'request')}{rate}: prompts of {found.prompt_tokens.mean:,.0f} "
        f"tokens, answers of {found.output_tokens.mean:,.0f} on average",
        figures=((("found by a prefix cache at best", f"{found.reuse.ideal_hit_rate:.0%} of prompt blocks"),)
                 if found.reuse else ()),
        confirm=tuple(found.untold[:3]),
        risk="What a workload does not tell has to be assumed where it is served: see the list.",
    )  # fmt: skip


def head(answer: DescribeResult) -> list[Block]:
    found = answer.description
    count = counted(found.table.num_requests, "request")
    if isinstance(answer.workload, Population):
        return [Line(f": a population; {count} of {found.num_users:,} users drawn", bold=answer.workload.name)]
    return [Line(f": {count}{span(found.arrivals)}, {answer.workload.format} format", bold=answer.workload.name)]


def body(answer: DescribeResult) -> list[Block]:
    found, exact = answer.description, answer.exact
    remarks = {"What it does not tell": found.untold, "How it was read": answer.how_read}
    parts: list[list[Block]] = [
        arrival_blocks(found.arrivals) if found.arrivals else [],
        length_blocks(found, {} if exact is None else exact_means(exact)),
        reuse_blocks(found.reuse, answer.hit_rates) if found.reuse else [],
    ]
    parts += [[Line(bold=title), *(Line(f"  {text}") for text in told)] for title, told in remarks.items() if told]
    return [block for part in parts if part for block in (*part, Line())][:-1]


def details(answer: DescribeResult) -> dict[str, object]:
    return {"traffic": traffic_json(answer.description), "limits": [*answer.description.untold, *answer.how_read]}


def traffic_json(found: Description) -> dict[str, object]:
    """None for what the workload does not tell."""
    table = found.table
    lengths = {
        "percentiles": list(PERCENTILES),
        "prompt": percentiles_json(table.prompt_tokens.astype(float)),
        "answer": percentiles_json(table.output_tokens.astype(float)),
    }
    return {"rate": _rate(found), "lengths": lengths, "reuse": _reuse(found.reuse) if found.reuse else None}


def _rate(found: Description) -> dict[str, object] | None:
    """Requests per second over the trace."""
    if found.arrivals is None:
        return None
    times = np.sort(earliest_arrival_s(found.table))
    width_s = max(found.arrivals.duration_s / MOST_WINDOWS, 1e-9)
    rates = counts(times - times[0], width_s) / width_s
    note = f"Each step is {width_s:,.3g} s long; the mean is {found.arrivals.mean_per_s:,.3g} requests/s."
    return {
        "time_s": [rounded(place * width_s) for place in range(len(rates))],
        "per_s": [rounded(rate) for rate in rates.tolist()],
        "note": note,
    }


def _reuse(found: PrefixReuse) -> dict[str, object]:
    """Hit rate by size of the cache."""
    sizes = np.unique(np.geomspace(1, max(found.num_distinct_blocks, 2), MOST_SIZES).astype(np.int64)).tolist()
    return {
        "tokens": [size * found.block_size for size in sizes],
        "hit_rate": [rounded(found.hit_rate(size)) for size in sizes],
    }
