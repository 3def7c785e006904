"""Which choices of arguments promise most by their estimates, and which of those serve most by few simulations."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from files.errors import HeadcountError
from headcount.inputs.reading.variations import Axis, Choice, choices
from headcount.queries.result import Progress, Watch
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import Layouts
from simulator.study.points import Watcher

LOOKED_AT: Final = "candidates screened"  # what progress counts
DEFAULT: Final = None  # of an axis: the argument is left out
ROUNDS: Final = (4, 8, 16, 32)  # replications of each load
CLOSE: Final = 0.01  # half of an interval: nearer ones need not be told apart
Simulate = Callable[[Layout, int], Layout]


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


def simulate_in(layouts: Layouts, layout: Layout, replications: int, watcher: Watcher | None = None) -> Layout:
    """The layout from so many replications of each load; earlier ones come from the store."""
    if layout.looked is None:
        return layout
    looked = replace(layout.looked, question=replace(layout.looked.question, replications=replications))
    return layouts.simulated(replace(layout, looked=looked, row=None), watcher)


def race(base: Layout, entrants: Sequence[Layout], simulate: Simulate) -> list[Layout]:
    """The base and all entrants with their rows, in order; the base runs in every round, so that all are paired."""
    field = [simulate(each, ROUNDS[0]) for each in (base, *entrants)]
    for replications in ROUNDS[1:]:
        leader = most_users(field)
        ratios = [each.users_over(leader) for each in field]
        may_lead = [each is leader or (ratio and ratio.high >= 1) for each, ratio in zip(field, ratios, strict=True)]
        close = [place for place, is_close in enumerate(may_lead) if is_close]
        if all(field[place] is leader or _is_as_good(field[place], leader) for place in close):
            break
        for place in {0, *close}:
            field[place] = simulate(field[place], replications)
    return field


def most_users(field: Sequence[Layout]) -> Layout:
    """By the mean, of those that were simulated most often; the first of equals."""
    counts = [each.row.replications if each.row and each.row.users else 0 for each in field]
    last = [each for each, count in zip(field, counts, strict=True) if count == max(counts)]
    return max(last, key=lambda each: each.row.users if each.row else 0)


def _is_as_good(layout: Layout, leader: Layout) -> bool:
    """Whether it is known to serve as many to within CLOSE."""
    ratio = layout.users_over(leader)
    return ratio is not None and ratio.high - ratio.mean <= CLOSE and ratio.mean >= 1 - CLOSE


def leader(rows: Sequence[Layout]) -> Layout:
    """The layout that serves most, if it surely gains over the first, which is the base; else the base."""
    base, best = rows[0], most_users(rows)
    gain = best.users_over(base)
    return base if gain is not None and gain.low <= 1 else best


def simplest(best: Layout, at: Callable[[Choice], Layout]) -> Layout:
    """The best without every change that adds nothing; `at` gives the simulated layout of a choice."""
    for name in list(best.choice):
        without = at({key: value for key, value in best.choice.items() if key != name})
        ratio = without.users_over(best)
        if ratio is not None and ratio.mean >= 1 - CLOSE:
            best = without
    return best
