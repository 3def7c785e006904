"""A population's turns in equilibrium, by convolution: nothing is drawn."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from workloads.distributions import midpoints, tail_refined_edges, token_counts
from workloads.populations.counts import whole_turns
from workloads.populations.draws import chunk_room, fitted, thinking_tokens
from workloads.populations.population import Population
from workloads.requests import BoolArray, FloatArray, IntArray

MOST_CELLS: Final = 2000  # of the room beside the system prompt; a cell is a token or more
_TRANSFORM: Final = 4096  # numbers: above twice the cells, so that sums do not wrap round
_QUANTILES: Final = 512  # of messages, and of answers
_SHARES: Final = 24  # quantiles of the share of an answer that is thinking
_MOST_CASES: Final = 500_000  # of a turn's quantities together
_LOSSES: Final = 16  # classes of turns by the tokens that later prompts do not hold
_NOTHING: Final = 1e-12  # of conversations: what a transform leaves of 0 is less
_SETTLED: Final = 1e-6
_MOST_ROUNDS: Final = 100


@dataclass(frozen=True, kw_only=True)
class Equilibrium:
    """Means over the turns of sessions that have gone on for long, and shares from 0 to 1."""

    prompt_square: float
    """Squared tokens of a prompt, everything said before and the system prompt included."""
    prompt: float
    """Tokens of a prompt."""
    context: float
    """Tokens of prompt and answer together: what a turn holds as it ends."""
    conversations_cut: float
    """They end before their last turn, which would not fit."""
    messages_shortened: float
    answers_cut: float


@lru_cache(maxsize=64)
def equilibrium(population: Population, max_model_len: int) -> Equilibrium:
    """What `Population.sessions` draws, in which conversations end where `max_model_len` cuts them.

    Where conversations go on beyond the limit, means are of the turns before it, and those that reach it are the cut.
    Exact but for the cells in which histories are held: where a conversation is cut is blurred by 1/2000 of the room;
    where turns lose thinking or chunks, by the spread of what is lost within 1/16 of them.
    Raises InputError where there is no room for a message beside the system prompt.
    """
    population.check_room(max_model_len)
    population = population.within(max_model_len)
    system = population.opening_tokens
    one, survival = _one_turn(population, population.room(max_model_len)), _survival(population)
    opening = np.ones_like(one.share)
    for _ in range(_MOST_ROUNDS):
        before, talks = opening, _conversations(one, opening, survival)
        if population.at_limit.goes_on:
            break
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
        prompt=float(system + opening @ one.user + history @ (said * share + user)) / turns,
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
    user: FloatArray  # share times tokens of the message and of what is retrieved
    user_square: FloatArray
    said: FloatArray  # share times tokens of these and the answer
    kept: tuple["_Kept", ...]
    blur: float  # variance that cells add to a sum of such turns, for each
    shortened: float
    answers_cut: float


@dataclass(frozen=True, eq=False)
class _Kept:
    """Turns that lose about as many tokens: what of them stays in the conversation, by cells."""

    lost: float  # cells
    share: FloatArray


def _one_turn(population: Population, room: int) -> _OneTurn:
    cases, cell = _cases(population, room), -(-room // MOST_CELLS)
    cells, share = room // cell, cases.weight
    need = cases.added + cases.output

    message, length = cases.added.astype(float), _Lengths.of(need, cell, cells)
    stays = need - cases.lost if cases.lost.any() else need
    kept_length = length if stays is need else _Lengths.of(stays, cell, cells)
    kept = []
    for alike in _alike(cases, cell):
        lost = float(share[alike] @ cases.lost[alike]) / float(share[alike].sum())
        kept.append(_Kept(lost / cell, kept_length.part(alike).shared_out(share[alike])))
    return _OneTurn(
        cell=cell,
        share=length.shared_out(share),
        user=length.shared_out(share * message),
        user_square=length.shared_out(share * message**2),
        said=length.shared_out(share * need),
        kept=tuple(kept),
        blur=float(share @ (kept_length.above * (1 - kept_length.above))) * cell**2,
        shortened=min(float(share[cases.is_shortened].sum()), 1.0),
        answers_cut=min(float(share[cases.is_cut].sum()), 1.0),
    )


@dataclass(frozen=True, eq=False)
class _Lengths:
    """[cases] lengths in cells: the cell at or below each, and how far it lies above that."""

    below: IntArray
    above: FloatArray
    cells: int

    @classmethod
    def of(cls, tokens: IntArray, cell: int, cells: int) -> "_Lengths":
        place = np.minimum(tokens / cell, cells)
        below = place.astype(np.int64)
        return cls(below, np.asarray(place - below, np.float64), cells)

    def part(self, cases: slice | IntArray) -> "_Lengths":
        return _Lengths(self.below[cases], self.above[cases], self.cells)

    def shared_out(self, value: FloatArray) -> FloatArray:
        """[cells + 1] sums of a value; between two cells it is shared out so that the mean holds."""
        found = np.bincount(self.below, value * (1 - self.above), self.cells + 1)
        found[1:] += np.bincount(self.below, value * self.above, self.cells + 1)[:-1]
        return np.asarray(found)


@dataclass(frozen=True, eq=False)
class _Cases:
    """All that a turn may be: [cases] each."""

    weight: FloatArray
    added: IntArray  # tokens of the message and of what is retrieved
    output: IntArray
    lost: IntArray  # of these, tokens that later prompts do not hold
    is_shortened: BoolArray  # the message
    is_cut: BoolArray  # the answer


def _cases(population: Population, room: int) -> _Cases:
    """Every combination of quantiles of messages, answers, chunks and shares of thinking."""
    chunks, chunk_weight = _chunks(population, room)
    share, share_weight = np.zeros(1), np.ones(1)
    if population.thinking_share is not None:
        share_weight = np.full(_SHARES, 1 / _SHARES)
        share = population.thinking_share.quantile((np.arange(_SHARES) + 0.5) / _SHARES)
    quantiles = min(_QUANTILES, int((_MOST_CASES / (len(chunks) * len(share))) ** 0.5))
    edges = tail_refined_edges(quantiles)
    width, middle = np.diff(edges), midpoints(edges)
    axes = [
        token_counts(population.user_tokens, middle), token_counts(population.output_tokens, middle), chunks, share
    ]  # fmt: skip
    asked_user, asked_output, retrieved, thinks = (part.ravel() for part in np.meshgrid(*axes, indexing="ij"))
    weight = np.multiply.outer(np.outer(width, width), np.outer(chunk_weight, share_weight)).ravel()
    images = population.message_image_tokens
    user, output = fitted(asked_user, asked_output, room - retrieved - images)
    stays = population.retrieved is None or population.retrieved.in_history
    return _Cases(
        weight=weight,
        added=user + retrieved + images,
        output=output,
        lost=thinking_tokens(thinks, output) + (0 if stays else retrieved),
        is_shortened=user < asked_user,
        is_cut=output < asked_output,
    )


def _chunks(population: Population, room: int) -> tuple[IntArray, FloatArray]:
    """Tokens that a turn retrieves, and their probabilities."""
    retrieved = population.retrieved
    if retrieved is None:
        return np.zeros(1, np.int64), np.ones(1)
    edges = tail_refined_edges()
    fitting = retrieved.fitted_counts(midpoints(edges), chunk_room(population, room))
    counts, place = np.unique(fitting, return_inverse=True)
    return counts * retrieved.chunk_tokens, np.bincount(place, np.diff(edges)).astype(np.float64)


def _alike(cases: _Cases, cell: int) -> Iterator[slice | IntArray]:
    """Cases by what they lose, in classes of equal weight; less than a cell is nothing."""
    if cases.lost.max() < cell:
        yield slice(None)
        return
    order = np.argsort(cases.lost, kind="stable")
    upto = np.cumsum(cases.weight[order])
    bounds = np.searchsorted(upto, np.arange(1, _LOSSES) / _LOSSES * upto[-1])
    yield from (part for part in np.split(order, np.unique(bounds)) if len(part))


def _survival(population: Population) -> FloatArray:
    """[longest + 1] share of conversations with more than 0, 1, … turns."""
    edges = tail_refined_edges()
    turns = whole_turns(population.turns, midpoints(edges))
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
    cells = np.arange(len(opening))
    spectra = [np.fft.rfft(kept.share, _TRANSFORM) for kept in one.kept]
    fits = [cells + kept.lost < len(opening) for kept in one.kept]  # beside what the turn itself loses
    said = np.zeros_like(opening)
    for kept in one.kept:
        said += kept.share * np.interp(cells + kept.lost, cells, opening)
    ended, blur = 0.0, 0.0
    history = np.zeros_like(said)
    for turns in range(1, len(survival)):  # taken so far
        goes_on = survival[turns] / survival[turns - 1]
        ended += (1 - goes_on) * float(said.sum())
        said = goes_on * said
        history += said
        if float(said.sum()) < _NOTHING:
            break
        before, said = np.fft.rfft(said, _TRANSFORM), np.zeros_like(said)
        for spectrum, fit in zip(spectra, fits, strict=True):
            longer = np.fft.irfft(before * spectrum, _TRANSFORM)[: len(said)]
            said += np.where((longer > _NOTHING) & fit, longer, 0.0)
        blur += turns * one.blur * float(said.sum())
    too_long = np.append(0.0, np.cumsum(history[::-1])[:-1])  # histories beside which a turn of this length has no room
    cut = float(too_long @ one.share)
    return _Conversations(history=history, blur=blur, next_opening=(ended + too_long) / (ended + cut), cut=cut)
