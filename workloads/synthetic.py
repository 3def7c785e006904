"""Loads of fixed or uniform lengths, as benchmark clients make them, and when they arrive."""

from dataclasses import replace
from typing import Any

import numpy as np

from files.limits import check_limit
from files.reading import InputError
from workloads.arrivals import POISSON, Arrivals, arrival_times
from workloads.distributions import Distribution, Exponential, Fixed, Uniform
from workloads.populations.population import Population
from workloads.randomness import stream
from workloads.requests import NEXT_FREE, NO_PREDECESSOR, Int32Array, RequestTable, independent_requests
from workloads.stages import Stages

MOST = 2**30  # users, or tokens of one prompt or answer: the sum of two still is an int32


def closed_load(
    *, concurrency: int, num_requests: int, input_len: int, output_len: int, length_spread: float = 1.0, seed: int = 0
) -> RequestTable:
    """What a client with a maximum concurrency sends: as many at time 0, then the next row whenever one finishes.

    Lengths are whole numbers, uniform in [length_spread, 1] × nominal; 1 is exact. No two requests share content.
    """
    _check_count("concurrency", concurrency)
    prompt, output = _lengths(num_requests, input_len, output_len, length_spread, seed)
    waits = np.arange(num_requests) >= concurrency
    return independent_requests(
        arrival_s=np.where(waits, np.nan, 0.0),
        prompt_tokens=prompt,
        output_tokens=output,
        follows=np.where(waits, NEXT_FREE, NO_PREDECESSOR),
    )


def open_load(
    *,
    rate_per_s: float,
    num_requests: int,
    input_len: int,
    output_len: int,
    arrivals: Arrivals = POISSON,
    length_spread: float = 1.0,
    seed: int = 0,
) -> RequestTable:
    """What a client sends at a given rate, whatever the server does; an infinite rate sends all at time 0.

    Lengths as in `closed_load`. Another rate scales the same arrivals.
    """
    prompt, output = _lengths(num_requests, input_len, output_len, length_spread, seed)
    if rate_per_s == np.inf:
        arrival_s = np.zeros(num_requests)
    else:
        arrival_s = arrival_times(arrivals, rate_per_s, num_requests, seed)
    return independent_requests(arrival_s=arrival_s, prompt_tokens=prompt, output_tokens=output)


def staged_load(stages: Stages, *, arrivals: Arrivals = POISSON, seed: int = 0, **lengths: Any) -> RequestTable:
    """What a client sends that holds one rate after the other. `lengths` as in `open_load`."""
    arrival_s = stages.times(seed, arrivals)
    if not len(arrival_s):
        raise InputError("no request arrives in any stage; give higher rates or longer stages")
    at_once = open_load(rate_per_s=np.inf, num_requests=len(arrival_s), seed=seed, **lengths)
    return replace(at_once, arrival_s=arrival_s)


def single_turn_users(
    *, input_len: int, output_len: int, think_time_s: float, length_spread: float = 1.0
) -> Population:
    """Users whose every turn is a conversation of its own, with exponential think times of this mean; 0 is none."""
    for name, value in (("input_len", input_len), ("output_len", output_len)):
        _check_count(name, value)
    _check_spread(length_spread)
    think: Distribution = Exponential(mean_value=think_time_s) if think_time_s else Fixed(value=0)
    return Population(
        name=f"{input_len} in, {output_len} out",
        system_prompt_tokens=0,
        turns=Fixed(value=1),
        user_tokens=Uniform(low=length_spread * input_len, high=input_len),
        output_tokens=Uniform(low=length_spread * output_len, high=output_len),
        think_time_s=think,
    )


def _lengths(
    num_requests: int, input_len: int, output_len: int, length_spread: float, seed: int
) -> tuple[Int32Array, Int32Array]:
    _check_count("num_requests", num_requests)
    check_limit("requests", num_requests, "requests")
    _check_spread(length_spread)
    drawn = []
    for name, nominal, purpose in (
        ("input_len", input_len, "user_tokens"),
        ("output_len", output_len, "output_tokens"),
    ):
        _check_count(name, nominal)
        low = max(1, int(length_spread * nominal + 1e-9))  # 1e-9: 0.29 * 100 is 28.999999999999996
        u = stream(seed, purpose).random(num_requests)
        drawn.append((low + np.floor(u * (nominal - low + 1))).astype(np.int32))
    return drawn[0], drawn[1]


def _check_count(name: str, value: int) -> None:
    if not 1 <= value < MOST:
        raise InputError(f"{name} is {value:,}; it must be at least 1, below {MOST:,}")


def _check_spread(length_spread: float) -> None:
    if not 0 < length_spread <= 1:
        raise InputError(f"length_spread is {length_spread}; it must be above 0, at most 1 (1 = exact lengths)")
