"""How many turns sessions have, and how long their users think."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from workloads.description.lengths import Spread, spread
from workloads.distributions import RoundedUp, midpoints
from workloads.populations.population import Population
from workloads.requests import RequestTable

_QUANTILES = 4096


@dataclass(frozen=True, kw_only=True)
class SessionFigures:
    """Sessions of which some have several turns: of a population its conversations."""

    num_sessions: int | None
    """None for a population, which has as many as one draws."""
    turns: Spread
    multi_turn_share: float
    """Share of sessions with more than one turn."""
    think_s: Spread | None
    """From the end of an answer to the next turn; None where a trace does not tell."""


def session_figures(table: RequestTable, session_turns: Sequence[int] = ()) -> SessionFigures | None:
    """Of a trace, from `session_turns` where turns keep times of their own; None where it names no sessions."""
    has_thinking = bool((table.follows >= 0).any())
    if not (has_thinking or session_turns):
        return None
    turns = np.bincount(table.first_turns()) if has_thinking else np.array(session_turns)
    turns = turns[turns > 0]
    return SessionFigures(
        num_sessions=len(turns),
        turns=spread(turns),
        multi_turn_share=float((turns > 1).mean()),
        think_s=spread(table.think_s[table.follows >= 0]) if has_thinking else None,
    )


def conversation_figures(population: Population, table: RequestTable) -> SessionFigures:
    """Of a population's conversations, as long as their users mean them to be; think times are those drawn."""
    turns = RoundedUp(inner=population.turns).quantile(midpoints(np.linspace(0, 1, _QUANTILES + 1)))
    return SessionFigures(
        num_sessions=None,
        turns=spread(turns),
        multi_turn_share=float((turns > 1).mean()),
        think_s=spread(table.think_s[table.follows >= 0]),
    )
