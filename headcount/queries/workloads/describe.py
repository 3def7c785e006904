"""What is in a workload, and what does it not tell?"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from files.documents import Json
from files.reading import InputError
from headcount.inputs.question import question
from headcount.inputs.traffic import TrafficInput
from headcount.queries.result import Result
from workloads.description.arrivals import Arrivals
from workloads.description.description import Description, describe_population, describe_trace
from workloads.description.reuse import PrefixReuse
from workloads.populations.population import Population
from workloads.populations.summary import PopulationSummary, population_summary
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source

CACHE_TOKENS = (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000)
BLOCK_SIZE = 16  # vLLM's default, vllm/config/cache.py


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DescribeResult(Result):
    """Rates, bursts, lengths, sessions, prefix reuse of a workload, and what it does not tell."""

    kind = "workload"
    view = "workload_description"
    workload: Population | Trace
    description: Description
    cache_tokens: tuple[int, ...]

    @property
    def exact(self) -> PopulationSummary | None:
        """A population's exact means; None for a trace."""
        return population_summary(self.workload) if isinstance(self.workload, Population) else None

    @property
    def how_read(self) -> tuple[str, ...]:
        """What the trace's reader left out or took for granted."""
        return self.workload.notes if isinstance(self.workload, Trace) else ()

    @property
    def hit_rates(self) -> dict[int, float]:
        """Share of prompt blocks found in a cache of so many tokens."""
        reuse = self.description.reuse
        return {} if reuse is None else {size: reuse.hit_rate(size // reuse.block_size) for size in self.cache_tokens}

    def figures(self) -> Json:
        found, summary = self.description, self.exact
        return {
            "workload": self.workload.name,
            "format": self.workload.format if isinstance(self.workload, Trace) else "population",
            "num_users": found.num_users or None,
            "num_requests": found.table.num_requests,
            "arrivals": _arrivals_json(found.arrivals) if found.arrivals else None,
            "prompt_tokens": asdict(found.prompt_tokens),
            "output_tokens": asdict(found.output_tokens),
            **asdict(found.dependence),
            "sessions": asdict(found.sessions) if found.sessions else None,
            "prefix_reuse": self._reuse_json(found.reuse) if found.reuse else None,
            "exact_means": None if summary is None else exact_means(summary),
            "not_told": list(found.untold),
            "how_read": list(self.how_read),
        }

    def _reuse_json(self, reuse: PrefixReuse) -> dict[str, object]:
        return {
            "block_size": reuse.block_size,
            "num_blocks": reuse.num_blocks,
            "num_distinct_blocks": reuse.num_distinct_blocks,
            "ideal_hit_rate": reuse.ideal_hit_rate,
            "caches": [{"kv_cache_tokens": size, "hit_rate": rate} for size, rate in self.hit_rates.items()],
        }

    def rows(self) -> list[Json]:
        names = ("prompt_tokens", "output_tokens")
        return [{"what": name, **asdict(getattr(self.description, name))} for name in names]


@question
def describe(
    workload: Source,
    *,
    traffic: TrafficInput = TrafficInput(),
    block_size: int | None = None,
    kv_cache_tokens: Sequence[int] = CACHE_TOKENS,
    users: int = 1000,
    seed: int = 0,
) -> DescribeResult:
    """Rates, bursts, lengths, sessions and prefix reuse of a trace, or of a draw of a population.

    `block_size` is that of the prefix cache; by default that of a trace's block ids, else 16. `kv_cache_tokens` are the
    sizes of the cache to give hit rates for. `users` of a population are drawn, and share the cache. Raises
    ValueError where the workload cannot be read.
    """
    check_sizes(block_size, kv_cache_tokens)
    found, _ = traffic.load(workload)
    if isinstance(found, Trace):
        description = describe_trace(found, block_size or found.block_size or BLOCK_SIZE)
    else:
        description = describe_population(found, block_size or BLOCK_SIZE, users, seed)
    sizes = tuple(sorted(set(kv_cache_tokens)))
    return DescribeResult(diagnostics=(), workload=found, description=description, cache_tokens=sizes)


def check_sizes(block_size: int | None, kv_cache_tokens: Sequence[int]) -> None:
    """Raise InputError for a size of a prefix cache that is none."""
    if block_size is not None and block_size < 1:
        raise InputError(f"block_size is {block_size}; it must be at least 1 token")
    wrong = next((size for size in kv_cache_tokens if size < 1), None)
    if wrong is not None:
        raise InputError(f"kv_cache_tokens holds {wrong}; each must be at least 1 token")


def exact_means(summary: PopulationSummary) -> dict[str, float]:
    """By name, with units; computed from the distributions, nothing cut."""
    return {
        "turns": summary.mean_turns,
        "prompt_tokens": summary.mean_context_tokens - summary.mean_output_tokens,
        "output_tokens": summary.mean_output_tokens,
        "think_time_s": summary.mean_think_time_s,
    }


def _arrivals_json(found: Arrivals) -> dict[str, object]:
    windows = [
        {
            "window_s": width,
            "num_windows": window.num_windows,
            "peak_requests_per_s": window.peak_per_s,
            "variance_over_mean": window.variance_over_mean,
        }
        for width, window in found.windows.items()
    ]
    return {
        "duration_s": found.duration_s,
        "requests_per_s": found.mean_per_s,
        "gap_cv": found.gap_cv,
        "gap_p50_s": found.gap_p50_s,
        "gap_p99_s": found.gap_p99_s,
        "num_distinct_times": found.num_times,
        "windows": windows,
        "hourly_requests_per_s": list(found.hourly_per_s),
    }
