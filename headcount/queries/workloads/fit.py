"""A generative model of a trace, small enough to share, beside the trace."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from files.documents import Json
from files.outputs import check_out_file, write_whole
from files.reading import InputError
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.question import question
from headcount.queries.result import Result
from headcount.queries.workloads.describe import BLOCK_SIZE, CACHE_TOKENS, check_sizes
from workloads.fitted.fitted_file import fitted_text
from workloads.fitted.fitted_trace import FittedTrace
from workloads.fitted.fitting import fit_trace as fit
from workloads.fitted.goodness import Goodness, goodness
from workloads.load import FITTED, load_workload
from workloads.populations.population import Population
from workloads.traces.trace_file import Source


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FitTraceResult(Result):
    """A model of a trace, its goodness of fit, and what it does not hold."""

    kind = "workload fit"
    view = "fitted_trace"
    model: FittedTrace
    goodness: Goodness
    out: Path | None
    num_bytes: int

    def figures(self) -> Json:
        found = self.goodness
        ranks = {of: each.dependence.rank_correlation for of, each in found.both.items()}
        return {
            "workload": self.model.name,
            "num_requests": self.model.num_requests,
            "out": None if self.out is None else str(self.out),
            "num_bytes": self.num_bytes,
            "kinds": {name: kind.share for name, kind in self.model.kinds.items()},
            "quantities": self.rows(),
            "distances": {name: asdict(distance) for name, distance in found.distances.items()},
            "rank_correlation": ranks,
            "variance_over_mean": [{"window_s": width, **_named(*pair)} for width, pair in found.dispersions.items()],
            "hit_rates": [{"kv_cache_tokens": size, **_named(*pair)} for size, pair in found.hit_rates.items()],
            "not_held": list(found.not_held),
        }

    def rows(self) -> list[Json]:
        return [
            {"quantity": name, "of": of, **asdict(spread)}
            for name in self.goodness.distances
            for of, each in self.goodness.both.items()
            if (spread := self.goodness.spread(each, name)) is not None
        ]


def _named(trace: float, model: float) -> dict[str, float]:
    return {"trace": trace, "model": model}


@question
def fit_trace(
    workload: Source,
    out: str | Path | None = None,
    *,
    trace_block_size: int | None = None,
    block_size: int | None = None,
    kv_cache_tokens: Sequence[int] = CACHE_TOKENS,
    num_requests: int | None = None,
) -> FitTraceResult:
    """Fit a generative model to a trace, and write it to `out`, a .toml file that `workload` takes everywhere.

    The model holds no request of the trace. `block_size` and `kv_cache_tokens` are those of the prefix caches in which
    both are compared; `num_requests` takes the trace's first rows alone. Raises HeadcountError where there is no such
    trace, or one of fewer than 100 requests or 30 sessions.
    """
    check_sizes(block_size, kv_cache_tokens)
    if out is not None:
        check_out_file("out", Path(out), (".toml",), "model.toml")
    found = load_workload(workload, trace_block_size=trace_block_size, num_requests=num_requests)
    if isinstance(found, Population) or found.format == FITTED:
        raise InputError(f"'{workload}' is a model already; give a trace")
    model = fit(found)
    text = fitted_text(model)
    beside = goodness(found, model, block_size or found.block_size or BLOCK_SIZE, tuple(sorted(set(kv_cache_tokens))))
    if out is not None:
        write_whole(out, text)
    return FitTraceResult(
        diagnostics=find_diagnostics(Facts(trace=found.notes)),
        model=model,
        goodness=beside,
        out=None if out is None else Path(out),
        num_bytes=len(text.encode()),
    )
