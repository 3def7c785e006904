"""A fitted trace as text: its arrivals, and each kind of request with its quantities."""

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np

from headcount.text.blocks import Block, Line, Table
from headcount.text.units import percent, short
from workloads.distributions import Empirical
from workloads.fitted.fitted_trace import FittedTrace

_TITLES: Final = {
    "new": "share nothing",
    "goes_on": "continue where an earlier one ended",
    "branches": "begin like an earlier one",
    "turns": "further turns of a session",
}
_QUANTILES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def fitted_json(model: FittedTrace) -> dict[str, object]:
    """Its figures, quantities as mean and quantiles."""
    cascade = model.cascade
    return {
        "name": model.name,
        "title": model.title,
        "num_requests": model.num_requests,
        "block_size": model.block_size,
        "period_s": cascade.period_s,
        "tick_s": cascade.tick_s,
        "kinds": [
            {"name": name, "share": share, "quantities": {key: _figures(each) for key, each in marginals.items()}}
            for name, share, marginals in _parts(model)
        ],
    }


def fitted_blocks(model: FittedTrace) -> Iterator[Block]:
    """Its arrivals in a sentence, then a table of quantities."""
    yield Line(bold=model.name, text=f": {model.title}")
    cascade = model.cascade
    if cascade.period_s:
        yield Line(
            f"  arrivals: {len(cascade.windows)} windows of {cascade.period_s / len(cascade.windows):,.3g} s, "
            f"each halved {len(cascade.unevenness)} times"
        )
    else:
        yield Line("  arrivals: all at once")
    yield Line()
    rows: list[tuple[str, ...]] = []
    for name, share, marginals in _parts(model):
        rows.append((f"{_title(name)}" + f", {percent(round(share, 3))}" * (name != "turns"), "", "", "", ""))
        rows += [(f"  {_words(key)}", *map(short, _figures(each).values())) for key, each in marginals.items()]
    yield Table(columns=("requests that", "mean", *_QUANTILES), rows=rows)


def _parts(model: FittedTrace) -> Iterator[tuple[str, float, Mapping[str, Empirical]]]:
    for name, kind in model.kinds.items():
        yield name, kind.share, kind.copula.marginals
    if model.turns is not None:
        yield "turns", 1.0, {"turns per session": model.turns.per_session, **model.turns.copula.marginals}


def _title(name: str) -> str:
    depth = name.removeprefix("shares_")
    return f"share {int(depth):,} tokens" if depth.isdigit() else _TITLES.get(name, name)


def _words(key: str) -> str:
    return "think time, s" if key == "think_s" else "requests since" if key == "lag" else key.replace("_", " ")


def _figures(marginal: Empirical) -> dict[str, float]:
    quantiles = marginal.quantile(np.array(list(_QUANTILES.values()))).tolist()
    return {"mean": marginal.mean(), **dict(zip(_QUANTILES, quantiles, strict=True))}
