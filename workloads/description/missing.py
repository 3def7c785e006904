"""What a workload does not tell, and which answers it cannot give therefore."""

from collections.abc import Iterator
from typing import Final

from workloads.description.arrivals import HOUR_S, Arrivals
from workloads.description.reuse import PrefixReuse
from workloads.description.sessions import SessionFigures

OF_POPULATIONS: Final = (
    "Rates and bursts: they follow from the number of users and from response times; see 'headcount simulate --users'.",
    "The time of day: users behave alike at every hour.",
)
_FEWEST_FOR_P99: Final = 1000  # ten of them lie above it
_ROUNDED: Final = 0.5  # distinct times per request below which times are rounded: measured ones hardly ever coincide


def untold(
    num_requests: int, found: Arrivals | None, sessions: SessionFigures | None, reuse: PrefixReuse | None
) -> tuple[str, ...]:
    """Sentences on a trace, each with its consequence."""
    return (*_of_times(num_requests, found), *_of_users(sessions), *_of_content(reuse), *_of_size(num_requests))


def _of_times(num_requests: int, found: Arrivals | None) -> Iterator[str]:
    if found is None:
        yield "Arrival times: the trace has lengths alone; give a rate or a number of users."
        return
    if found.num_times < _ROUNDED * num_requests:
        tick_s = found.duration_s / (found.num_times - 1)
        yield (
            f"Bursts shorter than {tick_s:.3g} s: its {num_requests:,} requests have only {found.num_times:,} "
            "different times; those of equal time arrive at once in a replay (--spread-ticks spreads them)."
        )
    if found.duration_s < 24 * HOUR_S:
        yield f"The time of day: it spans {found.duration_s / HOUR_S:.2g} h; other hours may be busier."


def _of_users(sessions: SessionFigures | None) -> Iterator[str]:
    if sessions is None:
        yield "Sessions: it does not say which requests are of one user, so nothing about turns."
        yield "Think times: a number of users follows from its rate only with a --think-time that you give."


def _of_content(reuse: PrefixReuse | None) -> Iterator[str]:
    if reuse is None:
        yield "Content: it does not say which prompts begin alike; simulated prompts miss the prefix cache."


def _of_size(num_requests: int) -> Iterator[str]:
    if num_requests < _FEWEST_FOR_P99:
        yield f"The tail: fewer than 10 of its {num_requests:,} requests lie above the 99th percentile."
