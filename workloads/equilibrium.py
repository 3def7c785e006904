"""A population's turns in equilibrium, by convolution: nothing is drawn."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from workloads.distributions import RoundedUp, midpoints, tail_refined_edges, token_counts
from workloads.population import Population, fitted
from workloads.requests import FloatArray

MOST_CELLS: Final = 2000  # of the room beside the system prompt; a cell is a token or more
_TRANSFORM: Final = 4096  # numbers: above twice the cells, so that sums do not wrap round
_QUANTILES: Final = 512  # of messages, and of answers
_NOTHING: Final = 1e-12  # of conversations: what a transform leaves of 0 is less
_SETTLED: Final = 1e-6
_MOST_ROUNDS: Final = 100


@dataclass(frozen=True, kw_only=True)
class Equilibrium:
    """Means over the turns of sessions that have gone on for long, and shares from 0 to 1."""

    prompt_square: float
    """Squared tokens of a prompt, everything said before and the system prompt included."""
    context: float
    """Tokens of prompt and answer together: what a turn holds as it ends."""
    conversations_cut: float
    """They end before their last turn, which would not fit."""
    messages_shortened: float
    answers_cut: float


@lru_cache(maxsize=64)
def equilibrium(population: Population, max_model_len: int) -> Equilibrium:
    """What `Population.sessions` draws, in which conversations end where `max_model_len` cuts them.

    Exact but for the cells in which histories are held: where a conversation is cut is blurred by 1/2000 of the room.
    Raises InputError where there is no room for a message beside the system prompt.
    """
    population.check_room(max_model_len)
    system = population.system_prompt_tokens
    one, survival = _one_turn(population, max_model_len - system), _survival(population)
    opening = np.ones_like(one.share)
    for _ in range(_MOST_ROUNDS):
        before, talks = opening, _conversations(one, opening, survival)
        opening = talks.next_opening
        if np.abs(opening - before).max() < _SETTLED:
            break
    history, said = talks.history, system + one.cell * np.arange(len(opening))
    share, user, user_square, both = (  # over all turns that fit beside so much said
        np.cumsum(part)[::-1] for part in (one.share, one.user, one.user_square, one.said)
    )
    turns = 1 + float(history @ share)
    opened = opening @ (system**2 * one.share + 2 * system * one.user + one.user_square)
    went_on = history @ (said**2 * share + 2 * said * user + user_square)
    return Equilibrium(
        prompt_square=float(opened + went_on - talks.blur) / turns,
        context=float(system + opening @ one.said + history @ (said * share + both)) / turns,
        conversations_cut=talks.cut,
        messages_shortened=one.shortened,
        answers_cut=one.answers_cut,
    )


@dataclass(frozen=True, eq=False)
class _OneTurn:
    """What a message and its answer add to a conversation, by cells of tokens: [cells + 1] each."""

    cell: int  # tokens
    share: FloatArray
    user: FloatArray  # share times tokens of the message
    user_square: FloatArray
    said: FloatArray  # share times tokens of both
    blur: float  # variance that cells add to a sum of such turns, for each
    shortened: float
    answers_cut: float


def _one_turn(population: Population, room: int) -> _OneTurn:
    edges = tail_refined_edges(_QUANTILES)
    width, middle = np.diff(edges), midpoints(edges)
    weight = np.outer(width, width)
    asked_user = token_counts(population.user_tokens, middle)[:, None]
    asked_output = token_counts(population.output_tokens, middle)[None, :]
    user, output = fitted(asked_user, asked_output, room)
    said, cell = (user + output).ravel(), -(-room // MOST_CELLS)
    cells = room // cell
    place = np.minimum(said / cell, cells)
    below = place.astype(np.int64)
    above = place - below  # a value between two cells is shared out so that the mean holds

    def by_cell(value: FloatArray) -> FloatArray:
        found = np.bincount(below, value * (1 - above), cells + 2)
        return np.asarray(found + np.bincount(below + 1, value * above, cells + 2))[:-1]

    share, message = weight.ravel(), np.broadcast_to(user, weight.shape).ravel().astype(float)
    return _OneTurn(
        cell=cell,
        share=by_cell(share),
        user=by_cell(share * message),
        user_square=by_cell(share * message**2),
        said=by_cell(share * said),
        blur=float(share @ (above * (1 - above))) * cell**2,
        shortened=min(float(weight[user < asked_user].sum()), 1.0),
        answers_cut=min(float(weight[output < asked_output].sum()), 1.0),
    )


def _survival(population: Population) -> FloatArray:
    """[longest + 1] share of conversations with more than 0, 1, … turns."""
    edges = tail_refined_edges()
    turns = RoundedUp(inner=population.turns).quantile(midpoints(edges)).astype(np.int64)
    return np.append(np.cumsum(np.bincount(turns, np.diff(edges))[::-1])[::-1][1:], 0.0)


@dataclass(frozen=True, eq=False)
class _Conversations:
    """What follows from the turns that open conversations, for each of these."""

    history: FloatArray
    """[cells + 1] how many turns come that find so much said, whether or not they fit."""
    blur: float
    next_opening: FloatArray
    """[cells + 1] how much likelier a turn of this length opens the next than any does: those that do not fit do."""
    cut: float


def _conversations(one: _OneTurn, opening: FloatArray, survival: FloatArray) -> _Conversations:
    spectrum = np.fft.rfft(one.share, _TRANSFORM)
    said, ended, blur = one.share * opening, 0.0, 0.0
    history = np.zeros_like(said)
    for turns in range(1, len(survival)):  # taken so far
        goes_on = survival[turns] / survival[turns - 1]
        ended += (1 - goes_on) * float(said.sum())
        said = goes_on * said
        history += said
        if float(said.sum()) < _NOTHING:
            break
        longer = np.fft.irfft(np.fft.rfft(said, _TRANSFORM) * spectrum, _TRANSFORM)[: len(said)]
        said = np.where(longer > _NOTHING, longer, 0.0)
        blur += turns * one.blur * float(said.sum())
    too_long = np.append(0.0, np.cumsum(history[::-1])[:-1])  # histories beside which a turn of this length has no room
    cut = float(too_long @ one.share)
    return _Conversations(history=history, blur=blur, next_opening=(ended + too_long) / (ended + cut), cut=cut)
