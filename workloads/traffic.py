"""Other traffic than a workload's own: longer contexts, longer answers, more turns, drawn with the same numbers."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from files.names import check_names, readable
from files.reading import InputError
from workloads.client_changes import CLIENT_CHANGES
from workloads.clients import Clients
from workloads.distributions import Distribution, Fixed, RoundedUp
from workloads.populations.at_limit import END, AtLimit
from workloads.populations.derived import WithValue, scaled, stretched_turns
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import AskedContext, Population
from workloads.populations.retrieval import Retrieval
from workloads.requests import OPEN_END, Int32Array
from workloads.traces.trace import Trace
from workloads.traffic_changes import CHANGES, FORMS, LEAST_FACTOR, MOST_FACTOR, Amount

_KEPT_SHARE: Final = 0.5  # of the context beside the system prompt, where the oldest is left out


def changed(population: Population, changes: Mapping[str, Amount]) -> Population:
    """The same users with other traffic; user u's turn k is drawn with the numbers that it had.

    The order of `changes` does not matter: each is of the workload's own traffic, but chunks are kept or dropped before
    a context is measured, and long prompts are put in last. Raises InputError for a name that is none of CHANGES, or an
    amount that is out of range.
    """
    check_names(changes, CHANGES, "change of traffic")
    for name in _CHANGED:
        if name in changes:
            _check(name, changes[name])
            population = _CHANGED[name](population, changes[name])
    return population if not changes else replace(population, name=_renamed(population.name, changes))


def changed_trace(trace: Trace, changes: Mapping[str, Amount]) -> Trace:
    """The same requests with other lengths or think times. Raises InputError, also where a trace has no such thing."""
    check_names(changes, CHANGES, "change of traffic")
    for name in CHANGES:
        if name in changes:
            _check(name, changes[name])
            if name not in TRACE_CHANGES:
                able = ", ".join(TRACE_CHANGES)
                raise InputError(f"{name} cannot be changed in a trace, which is replayed; a trace takes {able}")
            trace = TRACE_CHANGES[name](trace, changes[name])
    if changes:
        trace.table.validate()
    return trace if not changes else replace(trace, name=_renamed(trace.name, changes))


def _renamed(name: str, changes: Mapping[str, Amount]) -> str:
    return ", ".join([name, *(f"{what} {changes[what]}" for what in CHANGES if what in changes)])


def _check(name: str, amount: Amount) -> None:
    if CHANGES[name].form != amount.form:
        raise InputError(f"{name}={amount}; give {FORMS[CHANGES[name].form]}")
    if amount.share is not None and not 0 < amount.share <= 1:
        raise InputError(f"{name}={amount}; the share must be above 0, at most 100%")


def _scaled(what: str, distribution: Distribution, amount: Amount) -> Distribution:
    return scaled(distribution, amount.factor_of(distribution.mean(), what))


def _context(population: Population, amount: Amount) -> Population:
    if amount.is_factor and amount.value == 1:
        return population
    asked = AskedContext(times=population if amount.is_factor else None)
    if population.retrieved is not None and population.retrieved.mean_tokens():
        longer = _longer_passages(population, population.retrieved, amount)
        return replace(population, retrieved=longer, asked_context=asked)
    messages = scaled(population.user_tokens, _message_factor(population, amount))
    return replace(population, user_tokens=messages, asked_context=asked)


def _longer_passages(population: Population, retrieved: Retrieval, amount: Amount) -> Retrieval:
    """Of a length that makes prompt and answer that long on average, where nothing is cut: it grows with theirs."""
    twice = replace(population, retrieved=replace(retrieved, chunk_tokens=2 * retrieved.chunk_tokens))
    now, more = (equilibrium(each, OPEN_END - 1).context for each in (population, twice))
    context = amount.factor_of(now, "context") * now
    chunk_tokens = round(retrieved.chunk_tokens * (1 + (context - now) / (more - now)))
    if not 1 <= chunk_tokens < OPEN_END:
        least = now - (more - now) * (1 - 1 / retrieved.chunk_tokens)
        raise InputError(
            f"context {amount if amount.is_factor else readable(context)}; prompt and answer have {now:,.0f} tokens on "
            f"average, and longer or shorter passages make that at least {math.ceil(least):,}; below that, also change "
            "output, turns or the system prompt"
        )
    return replace(retrieved, chunk_tokens=chunk_tokens)


def _message_factor(population: Population, amount: Amount) -> float:
    """How many times as long messages make prompt and answer that long on average, where nothing is cut."""
    messages, answers = population.user_tokens.mean(), population.output_tokens.mean()
    stays, once = _beside_messages(population, answers)
    now, fixed = equilibrium(population, OPEN_END - 1).context, population.opening_tokens + once
    turns = (now - fixed) / (messages + stays)  # of messages and answers that a turn holds as it ends
    rest = fixed + turns * stays
    context = amount.factor_of(now, "context") * now
    least, most = (rest + factor * turns * messages for factor in (LEAST_FACTOR, 10 * MOST_FACTOR))
    if not least <= context <= most:
        raise InputError(
            f"context {amount if amount.is_factor else readable(context)}; prompt and answer have {now:,.0f} tokens on "
            f"average, and longer or shorter messages make that {math.ceil(least):,} to {math.floor(most):,}; beyond "
            "that, also change output or turns"
        )
    return (context - rest) / (turns * messages)


def _beside_messages(population: Population, answers: float) -> tuple[float, float]:
    """Mean tokens that a turn adds to later prompts beside its message, and that its own context alone holds."""
    thinking = answers * population.thinking_share.mean() if population.thinking_share else 0.0
    return answers - thinking + population.message_image_tokens, thinking


def _output(population: Population, amount: Amount) -> Population:
    return replace(population, output_tokens=_scaled("output", population.output_tokens, amount))


def _think_time(population: Population, amount: Amount) -> Population:
    return replace(population, think_time_s=_scaled("think-time", population.think_time_s, amount))


def _turns(population: Population, amount: Amount) -> Population:
    factor = amount.factor_of(RoundedUp(inner=population.turns).mean(), "turns")
    return population if factor == 1 else replace(population, turns=stretched_turns(population.turns, factor))


def _system_prompt(population: Population, amount: Amount) -> Population:
    tokens = amount.value * population.system_prompt_tokens if amount.is_factor else amount.value
    if not 0 <= tokens < OPEN_END:
        raise InputError(f"system-prompt={amount} makes {tokens:,.0f} tokens; give 0 to {OPEN_END - 1:,}")
    return replace(population, system_prompt_tokens=round(tokens))


def _long_prompts(population: Population, amount: Amount) -> Population:
    share = amount.share or 0.0
    long = Fixed(value=amount.value)
    mixed = long if share == 1 else WithValue(inner=population.user_tokens, value=amount.value, share=share)
    return replace(population, user_tokens=mixed)


def _retrieved(population: Population, amount: Amount) -> Population:
    retrieved = _retrieval(population)
    return replace(population, retrieved=replace(retrieved, chunks=_scaled("retrieved", retrieved.chunks, amount)))


def _in_history(population: Population, amount: Amount) -> Population:
    """Kept chunks stand before their message: those after the system prompt are replaced at each turn."""
    retrieved, is_kept = _retrieval(population), bool(amount.value)
    place = "before_message" if is_kept else retrieved.place
    return replace(population, retrieved=replace(retrieved, in_history=is_kept, place=place))


def _drop_oldest(population: Population, amount: Amount) -> Population:
    goes_on = AtLimit(does="truncate", kept_share=_KEPT_SHARE, source="--traffic drop-oldest")
    return replace(population, at_limit=goes_on if amount.value else END)


def _retrieval(population: Population) -> Retrieval:
    if population.retrieved is None:
        raise InputError(f"workload '{population.name}' retrieves nothing; take one with a [retrieved] table")
    return population.retrieved


def _trace_context(trace: Trace, amount: Amount) -> Trace:
    table = trace.table
    factor = amount.factor_of(float(table.prompt_tokens.mean()), "context")
    return replace(
        trace,
        table=replace(
            table,
            prompt_tokens=_whole(table.prompt_tokens * factor),
            span_end=_scaled_ends(table.span_end, factor),
        ),
    )


def _scaled_ends(ends: Int32Array, factor: float) -> Int32Array:
    """Ends of spans times a factor, each still beyond the one before: what rounding makes equal moves on by a token."""
    is_last, place = ends == OPEN_END, np.arange(len(ends))
    offset = (np.cumsum(is_last) - is_last) * 2**33  # of one request's spans from those of the others
    beyond = np.where(is_last, 0, np.rint(ends * factor).clip(1, OPEN_END - 1).astype(np.int64)) - place + offset
    increasing = np.maximum.accumulate(beyond) + place - offset
    return np.where(is_last, OPEN_END, np.minimum(increasing, OPEN_END - 1)).astype(np.int32)


def _trace_output(trace: Trace, amount: Amount) -> Trace:
    outputs = trace.table.output_tokens
    factor = amount.factor_of(float(outputs.mean()), "output")
    return replace(trace, table=replace(trace.table, output_tokens=_whole(outputs * factor)))


def _trace_think_time(trace: Trace, amount: Amount) -> Trace:
    table = trace.table
    follow = table.follows >= 0
    mean = float(table.think_s[follow].mean()) if follow.any() else 0.0
    if not mean > 0:
        raise InputError(f"trace '{trace.name}' has no think times to change: its requests follow no others")
    return replace(trace, table=replace(table, think_s=table.think_s * amount.factor_of(mean, "think-time")))


def _whole(tokens: npt.NDArray[np.floating]) -> Int32Array:
    return np.asarray(np.clip(np.rint(tokens), 1, OPEN_END - 1), dtype=np.int32)


def _of_clients(change: Callable[[Clients, Amount], Clients]) -> Callable[[Any, Amount], Any]:
    """How the clients of users, or of a trace's requests, are changed."""
    return lambda load, amount: replace(load, clients=change(load.clients, amount))


_OF_CLIENTS: Final = {name: _of_clients(change) for name, change in CLIENT_CHANGES.items()}
_CHANGED: Final[Mapping[str, Callable[[Population, Amount], Population]]] = {
    "retrieved-in-history": _in_history,
    "context": _context,
    "output": _output,
    "think-time": _think_time,
    "turns": _turns,
    "system-prompt": _system_prompt,
    "retrieved": _retrieved,
    "drop-oldest": _drop_oldest,
    "long-prompts": _long_prompts,
    **_OF_CLIENTS,
}
TRACE_CHANGES: Final[Mapping[str, Callable[[Trace, Amount], Trace]]] = {
    "context": _trace_context,
    "output": _trace_output,
    "think-time": _trace_think_time,
    **_OF_CLIENTS,
}
