"""What a trace, or a draw of a population, is like."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from files.documents import Json
from workloads.description.arrivals import HOUR_S, Arrivals, arrivals, earliest_arrival_s
from workloads.description.lengths import Dependence, Spread, dependence, spread
from workloads.description.reuse import PrefixReuse, prefix_reuse
from workloads.description.sessions import SessionFigures, conversation_figures, session_figures
from workloads.populations.population import Population
from workloads.requests import OPEN_END, RequestTable
from workloads.traces.blocks import shares_content
from workloads.traces.trace import Trace

DRAWN_TURNS: Final = 20  # of each user
OF_POPULATIONS: Final = (
    "Rates and bursts: they follow from the number of users and from response times; see 'headcount simulate --users'.",
    "The time of day: users behave alike at every hour.",
)
_FEWEST_FOR_P99: Final = 1000  # ten of them lie above it
_ROUNDED: Final = 0.5  # distinct times per request below which times are rounded: measured ones hardly ever coincide


@dataclass(frozen=True, kw_only=True, eq=False)
class Description:
    """Figures of a table of requests; lengths in tokens."""

    table: RequestTable
    num_users: int
    """Who were drawn of a population; 0 for a trace."""
    arrivals: Arrivals | None
    """None where requests have no times of their own."""
    prompt_tokens: Spread
    output_tokens: Spread
    dependence: Dependence
    sessions: SessionFigures | None
    reuse: PrefixReuse | None
    """None where no two requests share content."""
    untold: tuple[str, ...]
    """What it cannot say, in sentences."""


def describe_trace(trace: Trace, block_size: int) -> Description:
    """The whole trace; `block_size` tokens are one block of the prefix cache.

    A request that follows another is taken to arrive as soon as it can: answers take no time.
    """
    table = trace.table
    when, sessions = arrivals(earliest_arrival_s(table)), session_figures(table, trace.session_turns)
    reuse = prefix_reuse(table, block_size) if shares_content(table) else None
    return Description(
        **_lengths(table),
        num_users=0,
        arrivals=when,
        sessions=sessions,
        reuse=reuse,
        untold=tuple(_untold(table.num_requests, when, sessions, reuse)),
    )


def describe_population(population: Population, block_size: int, num_users: int, seed: int) -> Description:
    """A draw: users with DRAWN_TURNS turns each, met in the middle of conversations that nothing cuts.

    Prefix reuse counts all turns but each user's first, whose history was sent before the draw.
    """
    table = population.of_tenants(population.draw(num_users, DRAWN_TURNS, seed, OPEN_END - 1), seed)
    return Description(
        **_lengths(table),
        num_users=num_users,
        arrivals=None,
        sessions=conversation_figures(population, table),
        reuse=prefix_reuse(table, block_size, table.follows >= 0),
        untold=OF_POPULATIONS,
    )


def _lengths(table: RequestTable) -> Json:
    return {
        "table": table,
        "prompt_tokens": spread(table.prompt_tokens),
        "output_tokens": spread(table.output_tokens),
        "dependence": dependence(table.prompt_tokens, table.output_tokens),
    }


def _untold(
    num_requests: int, found: Arrivals | None, sessions: SessionFigures | None, reuse: PrefixReuse | None
) -> Iterator[str]:
    """Sentences on what a trace does not tell, each with its consequence."""
    if found is None:
        yield "Arrival times: the trace has lengths alone; give a rate or a number of users."
    elif found.num_times < _ROUNDED * num_requests:
        tick_s = found.duration_s / (found.num_times - 1)
        yield (
            f"Bursts shorter than {tick_s:.3g} s: its {num_requests:,} requests have only {found.num_times:,} "
            "different times; those of equal time arrive at once in a replay (--spread-ticks spreads them)."
        )
    if found is not None and found.duration_s < 24 * HOUR_S:
        yield f"The time of day: it spans {found.duration_s / HOUR_S:.2g} h; other hours may be busier."
    if sessions is None:
        yield "Sessions: it does not say which requests are of one user, so nothing about turns."
    if sessions is None or sessions.think_s is None:
        yield "Think times: a number of users follows from its rate only with a --think-time that you give."
    if reuse is None:
        yield "Content: it does not say which prompts begin alike; simulated prompts miss the prefix cache."
    if num_requests < _FEWEST_FOR_P99:
        yield f"The tail: fewer than 10 of its {num_requests:,} requests lie above the 99th percentile."
