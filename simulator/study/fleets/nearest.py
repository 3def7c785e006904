"""What would serve the users where nothing that was asked for does: each change is tried, none is guessed."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import islice, pairwise, takewhile
from typing import Final

from kvcache.models.catalog import load_model, model_names
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import active_parameters, total_parameters
from simulator.study.bottleneck import LONGER
from simulator.study.candidate import AFFINITY, Level, RunContext
from simulator.study.fleets.layouts import FleetQuestion, Offer
from simulator.study.fleets.screening import Screened
from simulator.study.fleets.search import OPTIMISM, Tables, screen_all, search_fleets, sized
from simulator.study.fleets.sizing import Sized
from simulator.study.points import Watcher
from simulator.study.running.simulations import Simulations
from simulator.study.slo import SLO

_SIMULATED: Final = 2  # changes of a kind, each with its cheapest layout
FAR_CHEAPER: Final = 2 / 3  # of the cost under a shorter limit
_FEWEST_USERS: Final = 10.0  # estimated per server: a change that barely helps is none


@dataclass(frozen=True, kw_only=True, eq=False)
class Nearest:
    """A change of the question under which a fleet serves the users, by simulation."""

    change: str  # the options that make it
    sized: Sized
    slo: SLO


def nearest_fleets(
    question: FleetQuestion,
    others: Sequence[Offer],
    watcher: Watcher | None = None,
    simulations: Simulations | None = None,
) -> Iterator[Nearest]:
    """One for each kind of change that helps: router, limit, weight format, `others` GPUs, smaller model."""
    how = RunContext(watcher=watcher, simulations=simulations or Simulations())
    for changes in (_routers, _limits, _formats, _gpus(others), _models):
        found = _least_change(question, changes, how)
        if found is not None:
            yield found


def under_longer_limits(question: FleetQuestion, how: RunContext) -> Nearest | None:
    """The least longer limits under which a fleet serves the users, or longer ones that cost far less."""
    return _least_change(question, _limits, how)


def _least_change(question: FleetQuestion, changes: "Changes", how: RunContext) -> Nearest | None:
    helpful = ((change, changed, first) for change, changed in changes(question) for first in _screened(changed)[:1])
    tried = _far_cheaper(helpful, question.slo) if changes is _limits else helpful
    for change, changed, first in islice(tried, _SIMULATED):
        found = sized(Tables(changed, how), first, Level.COARSE)
        if found.servers:
            return Nearest(change=change, sized=found, slo=changed.slo)
    return None


def in_fp8(question: FleetQuestion, best: Sized, simulations: Simulations | None = None) -> Nearest | None:
    """FP8 weights, where nobody said in which format and they cost less; coarsely."""
    if best.layout.disaggregated is not None:
        return None
    for change, changed in _formats(question):
        alike = replace(changed, disaggregated=None)
        first = next(iter(_screened(alike)), None)
        if first is None or first.usd_per_hour_if(OPTIMISM) >= best.usd_per_hour:
            return None
        *_, race = search_fleets(alike, RunContext(simulations=simulations or Simulations()), most=Level.COARSE)
        found = race.best
        is_cheaper = found is not None and found.usd_per_hour < best.usd_per_hour
        return Nearest(change=change, sized=found, slo=alike.slo) if found and is_cheaper else None
    return None


def _far_cheaper(helpful: "Iterator[Helpful]", slo: SLO) -> "Sequence[Helpful]":
    """From the last limit on that costs far less than the one before: just above what is met, servers serve few.

    Of changes of the same limits as the first that helps.
    """
    found = list(helpful)
    alike = [each for each in found if _kept_limits(each[1].slo, slo) == _kept_limits(found[0][1].slo, slo)]
    costs = [first.usd_per_hour for _, _, first in alike]
    gains = takewhile(lambda pair: pair[1] < FAR_CHEAPER * pair[0], pairwise(costs))
    return alike[sum(1 for _ in gains) :]


def _kept_limits(slo: SLO, of: SLO) -> tuple[bool, bool]:
    """Whether the limit on TTFT is still the same, and that on TPOT."""
    return slo.ttft_s == of.ttft_s, slo.tpot_s == of.tpot_s


Helpful = tuple[str, FleetQuestion, Screened]
"""A change, the question with it, and its cheapest layout."""
Changes = Callable[[FleetQuestion], Iterator[tuple[str, FleetQuestion]]]


def _screened(question: FleetQuestion) -> list[Screened]:
    """Layouts that should serve more than a few users, cheapest first."""
    try:
        found = screen_all(question).screened
    except ValueError:  # the change is refused, such as a format that no GPU on offer has
        return []
    return [each for each in found if each.users_per_server >= _FEWEST_USERS]


def _routers(question: FleetQuestion) -> Iterator[tuple[str, FleetQuestion]]:
    """Conversations that stay on one server find their own prefix in its cache; the estimate does not know it."""
    if question.router != AFFINITY:
        yield f"--router {AFFINITY}", replace(question, router=AFFINITY)


def _limits(question: FleetQuestion) -> Iterator[tuple[str, FleetQuestion]]:
    """A longer limit on TTFT, on TPOT, on both: the least that helps."""
    slo = question.slo
    for factor in LONGER:
        later = slo.with_ttft(factor)
        tpot_s = None if slo.tpot_s is None else round(slo.tpot_s * factor, 4)
        said = [f"--ttft {later.ttft_option}" if later.ttft_s else "", f"--tpot {1e3 * tpot_s:g}ms" if tpot_s else ""]
        if later.ttft_s is not None:
            yield said[0], replace(question, slo=later)
        if tpot_s is not None:
            yield said[1], replace(question, slo=replace(slo, tpot_s=tpot_s))
        if later.ttft_s is not None and tpot_s is not None:
            yield " ".join(said), replace(question, slo=replace(later, tpot_s=tpot_s))


def _formats(question: FleetQuestion) -> Iterator[tuple[str, FleetQuestion]]:
    args = question.variants[0]
    if args.quantization is None:
        changed = tuple(replace(each, quantization="fp8") for each in question.variants)
        yield "--quantization fp8", replace(question, variants=changed)


def _gpus(others: Sequence[Offer]) -> Changes:
    """All of them at once: the cheapest is taken."""

    def changes(question: FleetQuestion) -> Iterator[tuple[str, FleetQuestion]]:
        asked = {offer.gpu.name for offer in question.offers}
        new = tuple(offer for offer in others if offer.gpu.name not in asked)
        if new:
            changed = replace(question, offers=new)
            cheapest = next(iter(_screened(changed)), None)
            if cheapest is not None:
                yield f"--gpu {cheapest.layout.offer.gpu.name}", replace(changed, offers=(cheapest.layout.offer,))

    return changes


def _models(question: FleetQuestion) -> Iterator[tuple[str, FleetQuestion]]:
    """The largest model of the catalog that passes the screening: fewer parameters are rarely slower."""
    own = active_parameters(question.architecture)
    smaller = [name for size, name in _sizes() if size < own]
    low, high = 0, len(smaller)
    while low < high:  # the first that passes, from the largest
        middle = (low + high) // 2
        passes = bool(_screened(replace(question, architecture=load_model(smaller[middle]))))
        low, high = (low, middle) if passes else (middle + 1, high)
    for name in smaller[low : low + _SIMULATED]:
        yield f"--model {name}", replace(question, architecture=load_model(name))


@cache
def _sizes() -> tuple[tuple[int, str], ...]:
    """Active parameters and name of each model that anybody could chat with, the largest first."""
    found = [(active_parameters(model), name) for name in model_names() if _is_dense(model := load_model(name))]
    return tuple(sorted(found, reverse=True))


def _is_dense(model: Architecture) -> bool:
    return not model.is_moe and total_parameters(model) > 0
