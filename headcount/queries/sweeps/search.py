"""Which choices of arguments promise most by their estimates, and which of those serve most by few simulations."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from files.errors import HeadcountError
from headcount.inputs.reading.variations import Axis, Choice, choices
from headcount.queries.result import Progress, Watch
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts
from simulator.study.candidate import Level

LOOKED_AT: Final = "candidates screened"  # what progress counts
DEFAULT: Final = None  # of an axis: the argument is left out
CLOSE: Final = 0.02  # of the users: a change that gains less is not recommended, and need not be told apart
Simulate = Callable[[Layout, Level], Layout]


def check_space(**given: tuple[int, int]) -> None:
    """Raise HeadcountError unless each number lies between 1 and the most that goes with it."""
    for name, (value, most) in given.items():
        if not 1 <= value <= most:
            raise HeadcountError(f"{name} is {value:,}; give a whole number from 1 to {most:,}")


def searched(
    layouts: Layouts, axes: Sequence[Axis], base: Layout, *, trials: int, seed: int, progress: Watch
) -> list[Layout]:
    """Every choice that was looked at, the base first; all that exist, or as many as `trials`.

    Raises HeadcountError where the optimizer is missing.
    """
    found: dict[tuple[Any, ...], Layout] = {(): base}

    def users(choice: Choice) -> int:
        key = tuple(sorted(choice.items()))
        if key not in found:
            found[key] = layouts.screened(choice)
        return found[key].users

    count = math.prod(1 + len(axis.values) for axis in axes)
    sought = _every(axes, users) if count <= trials else _by_optuna(axes, users, trials, seed, count)
    for done, _ in enumerate(sought, 1):
        progress(Progress(done=done, total=min(count, trials), what=LOOKED_AT))
    return list(found.values())


def _every(axes: Sequence[Axis], users: Callable[[Choice], int]) -> Iterator[int]:
    whole = [Axis(axis.name, (DEFAULT, *axis.values)) for axis in axes]
    for choice in choices(whole, most=math.prod(len(axis.values) for axis in whole), what="choices"):
        yield users({name: value for name, value in choice.items() if value is not DEFAULT})


def _by_optuna(
    axes: Sequence[Axis], users: Callable[[Choice], int], trials: int, seed: int, count: int
) -> Iterator[int]:
    """By the tree-structured Parzen estimator (Bergstra et al. 2011), from the defaults on."""
    try:
        import optuna  # noqa: PLC0415  an optional extra
    except ImportError:
        raise HeadcountError(
            f"{trials:,} of {count:,} choices are searched by Optuna, which is missing; install headcount[optimize], "
            f"or search fewer values so that --trials covers all"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    study.enqueue_trial({axis.name: 0 for axis in axes})
    for _ in range(trials):
        trial = study.ask()
        places = {axis.name: trial.suggest_categorical(axis.name, range(1 + len(axis.values))) for axis in axes}
        found = users({axis.name: axis.values[places[axis.name] - 1] for axis in axes if places[axis.name]})
        study.tell(trial, found)
        yield found


def race(base: Layout, entrants: Sequence[Layout], simulate: Simulate) -> list[Layout]:
    """The base and all entrants with their rows, in order: coarse, then those confirmed that may lead; paired."""
    field = [simulate(each, Level.COARSE) for each in (base, *entrants)]
    most = most_users(field)
    ratios = [each.users_over(most) for each in field]
    for place, (each, ratio) in enumerate(zip(field, ratios, strict=True)):
        if place == 0 or each is most or (ratio and ratio.high >= 1):
            field[place] = simulate(each, Level.CONFIRMED)
    while (more := _may_lead_yet(field)) is not None:
        field[field.index(more)] = simulate(more, Level.CONFIRMED)
    return field


def _may_lead_yet(field: Sequence[Layout]) -> Layout | None:
    """One that few replications alone put before the leader."""
    first = leader(field)
    coarse = [each for each in field if each.row and each.row.evidence == Level.COARSE.word]
    return next((each for each in coarse if (gain := each.users_over(first)) and gain.low > 1), None)


def most_users(field: Sequence[Layout]) -> Layout:
    """At 95 % confidence, of those that are known best; the first of equals."""
    return max(_best_known(field), key=_users)


def leader(rows: Sequence[Layout]) -> Layout:
    """The layout that serves most of those that surely gain over the first, which is the base; else the base."""
    best = rows[0]
    while better := [each for each in _best_known(rows) if _is_surely_better(each, best)]:
        best = most_users(better)
    return best


def _is_surely_better(each: Layout, best: Layout) -> bool:
    gain = each.users_over(best)
    return _users(each) > _users(best) and (gain is None or gain.low > 1)


def _best_known(field: Sequence[Layout]) -> Sequence[Layout]:
    return [
        each for each in field if each.row and each.row.users and each.row.evidence == Level.CONFIRMED.word
    ] or field


def _users(each: Layout) -> tuple[float, float]:
    """At 95 % confidence, and expected."""
    return (each.row.users_low, each.row.users) if each.row else (0, 0)


def simplest(best: Layout, at: Callable[[Choice], Layout]) -> Layout:
    """The best without every change that adds nothing; `at` gives the simulated layout of a choice."""
    for name in list(best.choice):
        without = at({key: value for key, value in best.choice.items() if key != name})
        ratio = without.users_over(best)
        if ratio is not None and ratio.mean >= 1 - CLOSE:
            best = without
    return best
