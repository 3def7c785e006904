"""Which loads tell a step's time with the fewest runs."""

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from calibrate.record.loads import Limits, Load, Phase, expected_steps
from calibrate.record.step_terms import TERMS, FloatArray, term_matrix

STEP_SPREAD = 0.08  # of a step about the terms' time, relative: what repeating it averages out (a shared CPU's)
PHASE_SPREAD = 0.04  # of a phase about it: what repeating it does not
PRIOR_INFORMATION = 1e-4  # each term may be a hundred times what its steps take
RESERVE_TOKENS = 256  # a request may grow by these while it is held
HELD_STEPS = 8
MAX_CHUNKS = 24
MAX_REPEATS = 6  # of one load, each time with other prompts; more would hide what the terms cannot tell
MAX_STEPS = 10_000  # of one load, half a minute on a GPU, and MAX_ROWS sequences in them: to foresee more takes minutes
MAX_ROWS = 250_000
MAX_REQUESTS = 4096  # at once: servers run a thousand
RUN_SECONDS = 0.5  # that a further load costs beside its steps
PACKS = 3  # of prompts, a step each: the first step of a phase may have no time
LEADER = Phase(add=(16,), steps=2)  # something runs, so that the next step's time is from one output to another


@dataclass(frozen=True, eq=False)
class Plan:
    """Loads in the order in which they are run, with what they are expected to take and to give."""

    loads: tuple[Load, ...]
    seconds: tuple[float, ...]
    relative_error: float  # standard error of a predicted step time, the worst over the compositions that are reachable
    is_reached: bool  # whether that is the precision asked for
    too_long: int = 0  # compositions that time and MAX_STEPS do not allow, by the number of loads that hold them


@dataclass(frozen=True, eq=False)
class _Candidate:
    load: Load
    seconds: float
    information: FloatArray
    points: FloatArray  # one row per phase: terms over step time


def pilot(limits: Limits) -> Load:
    """What is run before anything is known of the speed."""
    short = _capped(min(64, limits.max_num_batched_tokens), limits)
    few = min(8, _most_sequences(short, limits))
    beside = min(2, few - 1)
    phases = [
        Phase(add=(short,), steps=HELD_STEPS),
        Phase(keep=1, add=(short,) * (few - 1), steps=HELD_STEPS),
        Phase(keep=0, add=(short,) * beside),
        Phase(keep=beside, add=(_capped(2 * limits.max_num_batched_tokens, limits),), steps=HELD_STEPS),
        Phase(keep=beside, add=(_capped(2 * short, limits),), budget=beside + short, steps=HELD_STEPS),
    ]
    return Load(name="pilot", phases=tuple(phases), seed=1)


def warm_up(limits: Limits) -> Load:
    """What is run first and not kept: every kernel once."""
    short = _capped(64, limits)
    few = min(8, _most_sequences(short, limits))
    phases = [Phase(add=(short,) * few, steps=4), Phase(keep=0, add=(_capped(limits.max_num_batched_tokens, limits),))]
    return Load(name="warm-up", phases=tuple(phases), seed=0)


def candidates(limits: Limits) -> list[Load]:
    """Loads over batch sizes, contexts, chunks and mixed steps."""
    every = [*_ladders(limits), *_prefills(limits), *_packs(limits), *_mixed(limits)]
    return [_varied(load) for load in every if load.most_requests() <= limits.max_num_seqs]


def _is_short(load: Load, limits: Limits) -> bool:
    steps, rows = load.num_steps(limits)
    return steps <= MAX_STEPS and rows <= MAX_ROWS


def _varied(load: Load) -> Load:
    """Prompts of up to a fifth less each: an engine that has met a batch's shape before is faster than real traffic.

    The same load always gets the same lengths; its first prompt keeps its own, so that the longest is there.
    """
    rng = random.Random(load.name)
    phases = [
        replace(phase, add=tuple(max(1, round(n * rng.uniform(0.8, 1.0))) for n in phase.add)) for phase in load.phases
    ]
    first = load.phases[0]
    phases[0] = replace(first, add=first.add[:1] + phases[0].add[1:])
    return replace(load, phases=tuple(phases))


def plan_loads(
    limits: Limits,
    term_seconds: FloatArray,
    *,
    precision: float,
    done: Sequence[Load] = (),
    spread: float = 1.0,
    max_seconds: float | None = None,
) -> Plan:
    """Add loads until every reachable composition's time is precise enough, then leave out what is not needed.

    `term_seconds` is a guess of each term's time, `spread` multiplies the assumed scatter of steps; `done` are loads
    that were run already. The next load is the one that lowers the standard errors (their logarithms, down to the
    precision) most per second: a greedy G-optimal design, weighted by cost.
    """
    possible = candidates(limits)
    every = [_weighed(load, limits, term_seconds, spread) for load in possible if _is_short(load, limits)]
    longest_s = np.inf if max_seconds is None else max_seconds / 2
    choice = [each for each in every if each.seconds <= longest_s] or [min(every, key=lambda each: each.seconds)]
    aim = _Aim(np.concatenate([each.points for each in choice]), precision)
    known = aim.prior + sum((aim.of(_weighed(load, limits, term_seconds, spread)) for load in done), 0.0)
    run = Counter(load.name for load in done)
    left_s = np.inf if max_seconds is None else max_seconds
    chosen = aim.needed(known, aim.chosen(known, choice, run, left_s))
    error = aim.errors(aim.total(known, chosen)).max()
    loads = [replace(each.load, seed=len(done) + number + 1) for number, each in enumerate(chosen)]
    seconds = tuple(each.seconds for each in chosen)
    return Plan(tuple(loads), seconds, float(error), bool(error <= precision), len(possible) - len(choice))


class _Aim:
    """A precision wanted at every point; information is in units that make all terms alike."""

    def __init__(self, points: FloatArray, precision: float) -> None:
        most = np.abs(points).max(axis=0)
        scale = np.where(most > 0, most, 1.0)  # a term that no load has
        self.points, self.precision = points / scale, precision
        self._square = np.outer(scale, scale)
        self.prior: FloatArray = np.eye(len(TERMS)) * PRIOR_INFORMATION

    def of(self, candidate: _Candidate) -> FloatArray:
        """A load's information."""
        return np.asarray(candidate.information / self._square)

    def total(self, known: FloatArray, chosen: Sequence[_Candidate]) -> FloatArray:
        return np.asarray(known + sum((self.of(each) for each in chosen), 0.0))

    def errors(self, information: FloatArray) -> FloatArray:
        """Standard error of each point's predicted time, relative to it."""
        covariance = np.linalg.inv(information)
        return np.asarray(np.sqrt(np.einsum("ij,jk,ik->i", self.points, covariance, self.points)))

    def chosen(
        self, known: FloatArray, choice: Sequence[_Candidate], run: Mapping[str, int], left_s: float
    ) -> list[_Candidate]:
        """Loads in the order of what they give per second, until the aim is reached or nothing more may be run."""
        found: list[_Candidate] = []
        times = [run.get(each.load.name, 0) for each in choice]
        while (errors := self.errors(known)).max() > self.precision:
            allowed = [n for n, each in enumerate(choice) if times[n] < MAX_REPEATS and each.seconds <= left_s]
            if not allowed:
                break
            best = max((self._gain(known, choice[n], errors), n) for n in allowed)[1]
            known = known + self.of(choice[best])
            found.append(choice[best])
            left_s -= choice[best].seconds
            times[best] += 1
        return found

    def _gain(self, known: FloatArray, candidate: _Candidate, errors: FloatArray) -> float:
        after = self.errors(known + self.of(candidate))
        lowered = np.log(np.maximum(errors, self.precision)) - np.log(np.maximum(after, self.precision))
        return float(lowered.sum()) / (candidate.seconds + RUN_SECONDS)

    def needed(self, known: FloatArray, chosen: Sequence[_Candidate]) -> list[_Candidate]:
        """Without those that the others make superfluous, the longest first."""
        kept = list(range(len(chosen)))
        for number in sorted(kept, key=lambda n: -chosen[n].seconds):
            others = [other for other in kept if other != number]
            if self.errors(self.total(known, [chosen[other] for other in others])).max() <= self.precision:
                kept = others
        return [chosen[number] for number in kept]


def expected_table(load: Load, limits: Limits) -> pd.DataFrame:
    """The sums of each step that a load gives, with its phase."""
    return pd.DataFrame([{"phase": phase, **vars(sums)} for phase, sums in expected_steps(load, limits)])


def expected_seconds(load: Load, limits: Limits, term_seconds: FloatArray) -> float:
    """What its steps take."""
    return float((term_matrix(expected_table(load, limits)) @ term_seconds).sum())


def _weighed(load: Load, limits: Limits, term_seconds: FloatArray, spread: float) -> _Candidate:
    table = expected_table(load, limits)
    terms = term_matrix(table)
    step_s = np.maximum(terms @ term_seconds, 1e-9)
    rows = terms / step_s[:, None]
    information = np.zeros((len(TERMS), len(TERMS)))
    points = []
    for _, places in sorted(table.groupby(["phase", table["prefill_tokens"] > 0]).indices.items()):
        group = rows[places]
        variance = (STEP_SPREAD**2 + len(group) * PHASE_SPREAD**2) * spread**2
        information += group.T @ group / variance
        points += [group[0], group[-1]]
    return _Candidate(load, float(step_s.sum()), information, np.array(points))


def _ladders(limits: Limits) -> Iterator[Load]:
    """Decodes of one context: the prompts are computed once, then the batch is halved down to one request."""
    for context in _contexts(limits):
        most = _most_sequences(context, limits)
        for top in sorted({most, max(1, most // 4), max(1, most // 16)}):
            phases = [Phase(add=(context,) * top, steps=HELD_STEPS)]
            phases += [Phase(keep=top >> halvings, steps=HELD_STEPS) for halvings in range(1, top.bit_length())]
            yield Load(name=f"decode-{context}x{top}", phases=tuple(phases))


def _prefills(limits: Limits) -> Iterator[Load]:
    """One prompt in chunks of one size, so that what it attends to grows at a constant number of tokens."""
    for tokens in _contexts(limits):
        for budget in _geometric(16, limits.max_num_batched_tokens, 4):
            if budget <= tokens <= budget * MAX_CHUNKS:
                yield Load(name=f"prefill-{tokens}-by-{budget}", phases=(Phase(add=(tokens,), budget=budget),))


def _packs(limits: Limits) -> Iterator[Load]:
    """Several prompts in one step, whole ones or chunks that sample nothing."""
    for tokens in _geometric(8, limits.max_num_batched_tokens, 4):
        room = min(_most_sequences(tokens, limits), limits.max_num_seqs - 1)
        if tokens > _longest(limits) or room < 1:
            continue
        packs = min(PACKS, room)
        count = min(limits.max_num_batched_tokens // tokens, room // packs)
        budget = min(count * tokens + 1, limits.max_num_batched_tokens)  # a pack beside the leader
        phases = (LEADER, Phase(keep=1, add=(tokens,) * count * packs, budget=budget))
        yield Load(name=f"pack-{count}x{tokens}", phases=phases)
        many = min(limits.max_num_batched_tokens // tokens, room, _most_sequences(4 * tokens, limits))
        if many > 1 and 4 * tokens <= _longest(limits):
            chunks = Phase(keep=1, add=(4 * tokens,) * many, chunk=tokens)
            yield Load(name=f"chunks-{many}x{tokens}", phases=(LEADER, chunks))


def _mixed(limits: Limits) -> Iterator[Load]:
    """Prompts that come in chunks beside decodes."""
    for context in _contexts(limits):
        most = _most_sequences(context, limits) * 3 // 4
        for count in sorted({1, max(1, most // 16), max(1, most // 2)}):
            phases = [Phase(add=(context,) * count, steps=HELD_STEPS)]
            for chunk in _geometric(32, limits.max_num_batched_tokens - count, 4):
                phases.append(Phase(keep=count, add=(_capped(2 * chunk, limits),), budget=count + chunk))
            if most > count and limits.max_num_seqs > count:
                yield Load(name=f"mixed-{context}x{count}", phases=tuple(phases))


def _contexts(limits: Limits) -> list[int]:
    return _geometric(16, _longest(limits), 4)


def _longest(limits: Limits) -> int:
    """The longest prompt that leaves room to be decoded."""
    reserve = min(RESERVE_TOKENS, max(limits.max_model_len // 4, 1))
    return max(1, min(limits.max_model_len, limits.kv_tokens) - reserve)


def _capped(tokens: int, limits: Limits) -> int:
    return max(1, min(tokens, _longest(limits)))


def _most_sequences(context: int, limits: Limits) -> int:
    """How many requests of that context are held at once, each grown by its reserve, without a preemption."""
    reserve = min(RESERVE_TOKENS, max(limits.max_model_len // 4, 1))
    return max(1, min(limits.max_num_seqs, limits.kv_tokens // (context + reserve), MAX_REQUESTS))


def _geometric(first: int, last: int, factor: int) -> list[int]:
    """From `first` by `factor`, with `last` at the end."""
    found = []
    while first < last:
        found.append(first)
        first *= factor
    return [*found, last] if last > 0 else found
