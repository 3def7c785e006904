"""A fitted model beside its trace, as lines and tables."""

from headcount.queries.workloads.fit import FitTraceResult
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, short
from workloads.fitted.goodness import Goodness

_KEYS = ("mean", "p50", "p95", "p99")


def length_blocks(found: Goodness) -> list[Block]:
    """How quantities are distributed, and how prompts and answers go together."""
    rows = []
    for name, distance in found.distances.items():
        trace, model = (found.spread(each, name) for each in found.both.values())
        pairs = [
            "" if trace is None or model is None else f"{short(getattr(trace, key))} / {short(getattr(model, key))}"
            for key in _KEYS
        ]
        rows.append((f"  {name}", *pairs, f"{distance.ks:.3f}", f"{distance.wasserstein:.3f}"))
    ranks = (f"{round(each.dependence.rank_correlation, 2) + 0.0:.2f}" for each in found.both.values())
    return [
        Table(columns=("trace / model", *_KEYS, "KS", "Wasserstein / mean"), rows=rows),
        Line(f"  rank correlation of prompt and answer tokens {' / '.join(ranks)}"),
    ]


def burst_blocks(found: Goodness) -> list[Block]:
    """Dispersion of arrivals by window; empty where requests have no times."""
    rows = [(f"  {width} s", *map(short, pair)) for width, pair in found.dispersions.items()]
    if not rows:
        return []
    return [
        Line(": variance / mean of the requests in a window (Poisson: 1)", bold="Bursts"),
        Table(columns=("  window", *found.both), rows=rows),
    ]


def reuse_blocks(found: Goodness) -> list[Block]:
    """Hit rates by size of the cache; empty where nothing is shared."""
    if not found.hit_rates:
        return []
    rows = [
        ("  unbounded" if size is None else f"  {size:,}", *(f"{rate:.1%}" for rate in pair))
        for size, pair in found.hit_rates.items()
    ]
    return [
        Line(": share of prompt blocks that are in it", bold="Prefix cache, LRU"),
        Table(columns=("  cache, tokens", *found.both), rows=rows),
    ]


def head(answer: FitTraceResult) -> list[Block]:
    of = f": a model of its {counted(answer.model.num_requests, 'request')}, {answer.num_bytes / 1000:.0f} kB"
    return [Line(of + (f", written to {answer.out}" if answer.out else ""), bold=answer.model.name)]


def body(answer: FitTraceResult) -> list[Block]:
    found = answer.goodness
    not_held: list[Block] = [Line(f"  {text}") for text in found.not_held]
    if not_held:
        not_held = [Line(bold="What the model does not hold"), *not_held]
    parts = [length_blocks(found), burst_blocks(found), reuse_blocks(found), not_held]
    return [block for part in parts if part for block in (*part, Line())][:-1]
