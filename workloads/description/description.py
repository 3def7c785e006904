"""What a trace, or a draw of a population, is like."""

from dataclasses import dataclass
from typing import Final

from files.documents import Json
from workloads.description.arrivals import Arrivals, arrivals, earliest_arrival_s
from workloads.description.lengths import Dependence, Spread, dependence, spread
from workloads.description.missing import OF_POPULATIONS, untold
from workloads.description.reuse import PrefixReuse, prefix_reuse
from workloads.description.sessions import SessionFigures, conversation_figures, session_figures
from workloads.populations.population import Population
from workloads.requests import OPEN_END, RequestTable
from workloads.traces.blocks import shares_content
from workloads.traces.trace import Trace

DRAWN_TURNS: Final = 20  # of each user


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
    when, sessions = arrivals(earliest_arrival_s(table)), session_figures(table)
    reuse = prefix_reuse(table, block_size) if shares_content(table) else None
    return Description(
        **_lengths(table),
        num_users=0,
        arrivals=when,
        sessions=sessions,
        reuse=reuse,
        untold=untold(table.num_requests, when, sessions, reuse),
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
