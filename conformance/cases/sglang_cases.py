"""Random loads on random engines, for laying our SGLang scheduler beside SGLang's own."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from conformance.cases.radix_cases import PAGE_SIZES, cut
from simulator.engines.sglang.engine import SCHEDULE_POLICIES, EngineConfig
from simulator.engines.sglang.eviction import EVICTION_POLICIES, TailBudget
from simulator.engines.sglang.token_spans import Spans
from simulator.engines.vllm.speculation import Speculation

STEP_S = 2.0**-6  # a power of two, so that times add up exactly in any order
TICK_S = 2.0**-8
PAUSE_S = 512 * STEP_S
MAX_STEPS = 4_000
_FEW_REQUESTS = 25
LONG = 1 << 30
STORM_EVERY = 4  # rounds of all policies and page sizes


@dataclass(frozen=True, kw_only=True)
class SGLangRequest:
    """When it comes, and what it asks; the next turn of a conversation follows another request."""

    arrival_s: float | None
    follows: int
    think_s: float
    spans: Spans
    prompt_tokens: int
    max_new_tokens: int
    num_tokens_to_stop: int | None
    ignore_eos: bool
    routing_key: str
    timeout_s: float | None = None  # after which its client cancels it


@dataclass(frozen=True, kw_only=True)
class SGLangCase:
    """An engine with a load; every batch takes STEP_S seconds."""

    name: str
    engine: EngineConfig
    requests: tuple[SGLangRequest, ...]

    def to_json(self) -> dict[str, Any]:
        """What the probe reads."""
        engine = asdict(self.engine)
        engine |= engine.pop("radix_eviction_tail")
        requests = [asdict(request) for request in self.requests]
        return {"name": self.name, "engine": engine, "step_s": STEP_S, "max_steps": MAX_STEPS, "requests": requests}


def random_sglang_case(seed: int, number: int) -> SGLangCase:
    """Case `number` of a seed, decided by both alone. Page sizes and policies take turns.

    Every fourth round of them is a storm: answers that fill a small pool, and an engine that does not foresee it, so
    that retractions follow each other.
    """
    rng = np.random.default_rng(np.random.SeedSequence([seed, number]))
    page_size = PAGE_SIZES[number % len(PAGE_SIZES)]
    turn = number // len(PAGE_SIZES)
    policy = SCHEDULE_POLICIES[turn % len(SCHEDULE_POLICIES)]
    is_storm = turn // len(SCHEDULE_POLICIES) % STORM_EVERY == 0
    load = _storm(rng, page_size) if is_storm else _load(rng, page_size)
    requests = _requests(rng, load)
    longest = max(request.prompt_tokens + request.max_new_tokens for request in requests)
    max_running = int(rng.choice([16, 64] if is_storm else [2, 4, 8, 16, 64]))
    is_mixed = bool(rng.random() < 0.3)
    least_chunk = max_running + page_size + 1 if is_mixed else 1
    chunk = -(-max(int(rng.choice([16, 64, 128, 256, 1024])), least_chunk) // page_size) * page_size
    threshold = int(rng.integers(1, longest))
    next_prompt = int(rng.integers(0, 50))
    engine = EngineConfig(
        max_total_num_tokens=_pool_tokens(rng, longest, page_size, is_storm=is_storm),
        context_len=longest + int(rng.integers(10, 200)),
        max_running_requests=max_running,
        page_size=page_size,
        chunked_prefill_size=None if rng.random() < 0.1 else chunk,
        max_prefill_tokens=(max_running if is_mixed else 0)
        + int(rng.choice([1, 1, 16] if is_storm else [64, 256, 1024, 16384])),
        schedule_policy=policy,
        schedule_conservativeness=float(rng.choice([0.0, 0.0, 0.1] if is_storm else [0.0, 0.1, 0.3, 0.3, 1.0])),
        enable_mixed_chunk=is_mixed,
        disable_overlap_schedule=bool(rng.random() < 0.35),
        disable_radix_cache=bool(rng.random() < 0.1 and policy != "shortest-prefill-first"),
        radix_eviction_policy=str(rng.choice(EVICTION_POLICIES, p=[0.4, 0.15, 0.15, 0.15, 0.15])),
        radix_eviction_tail=TailBudget(threshold=next_prompt + threshold, next_prompt_estimate=next_prompt),
        random_seed=int(rng.integers(2**31)),
    )
    return SGLangCase(name=f"{seed}/{number}", engine=engine, requests=requests)


def cancelled_sglang_case(seed: int, number: int) -> SGLangCase:
    """The same case with clients that cancel: while they wait, in mid-prompt, in mid-answer."""
    case = random_sglang_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 1]))
    longest, share = int(rng.choice([8, 60, 400])), rng.choice([0.2, 0.6])
    requests = tuple(
        replace(request, timeout_s=int(rng.integers(1, longest)) * TICK_S) if rng.random() < share else request
        for request in case.requests
    )
    return replace(case, requests=requests)


def windowed_sglang_case(seed: int, number: int) -> SGLangCase:
    """The same case with a pool for layers with sliding windows, in every fourth with clients that cancel.

    Where requests are few, many answers are so long that windows slide while they are written.
    """
    case = cancelled_sglang_case(seed, number) if number % 4 == 3 else random_sglang_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 2]))
    requests = case.requests
    if len(requests) < _FEW_REQUESTS and rng.random() < 0.6:
        requests = tuple(_with_a_long_answer(rng, each) if rng.random() < 0.5 else each for each in requests)
    longest = max(request.prompt_tokens + request.max_new_tokens for request in requests)
    page_size, window = case.engine.page_size, int(rng.choice([1, 7, 16, 31, 64, 127]))
    full = max(case.engine.max_total_num_tokens, _pool_tokens(rng, longest, page_size, is_storm=False))
    least = window + page_size + 1
    tokens = max(least, int(full * rng.choice([0.1, 0.3, 0.5, 0.8, 0.8, 1.0])))
    engine = replace(
        case.engine,
        max_total_num_tokens=full,
        context_len=longest + 50,
        sliding_window_size=window,
        swa_max_total_num_tokens=-(-tokens // page_size) * page_size,
    )
    return replace(case, engine=engine, requests=requests)


def stateful_sglang_case(seed: int, number: int) -> SGLangCase:
    """The same case with a pool of SSM states, in every fourth with clients that cancel.

    In every third case with pages of one token, states are kept without tracking them.
    """
    case = cancelled_sglang_case(seed, number) if number % 4 == 3 else random_sglang_case(seed, number)
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 3]))
    given, page_size = case.engine, case.engine.page_size
    kernel_chunk = int(rng.choice([4, 16, 64] if page_size == 1 else [page_size // 4, page_size, 2 * page_size]))
    tracks = page_size > 1 or rng.random() < 0.65
    track_interval = page_size * int(rng.choice([1, 2, 3] if page_size > 1 else [6, 16, 64]))
    is_late = not given.disable_overlap_schedule and (tracks or given.disable_radix_cache)
    per_request = 1 if given.disable_radix_cache else 3 + (1 + is_late) * tracks
    spare = int(rng.choice([0, 0, 1, 5, 40, 400]))
    requests = case.requests
    if len(requests) < _FEW_REQUESTS and rng.random() < 0.4:
        requests = tuple(_with_a_long_answer(rng, each) if rng.random() < 0.5 else each for each in requests)
    longest = max(request.prompt_tokens + request.max_new_tokens for request in requests)
    engine = replace(
        given,
        max_total_num_tokens=max(
            given.max_total_num_tokens, _pool_tokens(rng, longest, page_size, is_storm=len(requests) >= _FEW_REQUESTS)
        ),
        context_len=max(given.context_len, longest + 50),
        max_mamba_cache_size=per_request * given.max_running_requests + spare,
        mamba_radix_cache_strategy="extra_buffer" if tracks else "no_buffer",
        mamba_chunk_size=kernel_chunk,
        mamba_track_interval=track_interval,
        disable_overlap_schedule=not is_late,
    )
    return replace(case, engine=engine, requests=requests)


def _with_a_long_answer(rng: np.random.Generator, request: SGLangRequest) -> SGLangRequest:
    """Its content goes on as it ends."""
    more = int(rng.integers(130, 500))
    content, end = request.spans[-1]
    return replace(
        request,
        spans=(*request.spans[:-1], (content, end + more)),
        max_new_tokens=request.max_new_tokens + more,
        num_tokens_to_stop=request.num_tokens_to_stop and request.num_tokens_to_stop + more,
    )


def drafting_sglang_case(seed: int, number: int) -> SGLangCase:
    """The same case with drafts, of a drafter that reads the model's states or of a model of its own.

    Of half the requests, drafts go on after the last token.
    """
    case = cancelled_sglang_case(seed, number) if number % 4 == 3 else random_sglang_case(seed, number)
    return _with_draft_tokens(case, np.random.default_rng(np.random.SeedSequence([seed, number, 4])))


def stateful_drafting_sglang_case(seed: int, number: int) -> SGLangCase:
    """A case with a pool of SSM states, with draft tokens."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 5]))
    return _with_draft_tokens(stateful_sglang_case(seed, number), rng)


def windowed_drafting_sglang_case(seed: int, number: int) -> SGLangCase:
    """A case with a pool of windows, with draft tokens."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, number, 7]))
    return _with_draft_tokens(windowed_sglang_case(seed, number), rng)


def _with_draft_tokens(case: SGLangCase, rng: np.random.Generator) -> SGLangCase:
    most = case.engine.mamba_track_interval if case.engine.max_mamba_cache_size else LONG
    steps, topk = int(rng.integers(1, min(6, most))), int(rng.choice([1, 1, 2, 4]))
    speculation = Speculation(
        method=str(rng.choice(["eagle", "eagle", "draft_model"])),
        num_speculative_tokens=steps,
        acceptance_rate=float(rng.choice([0.0, 0.4, 0.8, 1.0])),
        topk=topk,
        num_draft_tokens=int(rng.integers(2, min(steps * topk + 1, most) + 1)) if topk > 1 else None,
    )
    requests = tuple(_with_more_content(each) if rng.random() < 0.5 else each for each in case.requests)
    return replace(case, engine=replace(case.engine, speculation=speculation), requests=requests)


def _with_more_content(request: SGLangRequest) -> SGLangRequest:
    content, end = request.spans[-1]
    return replace(request, spans=(*request.spans[:-1], (content, end + 4)))


SGLANG_CASES = {  # by what they are about
    "all": random_sglang_case, "cancelled": cancelled_sglang_case, "windows": windowed_sglang_case,
    "states": stateful_sglang_case, "speculative": drafting_sglang_case,
    "speculative-states": stateful_drafting_sglang_case, "speculative-windows": windowed_drafting_sglang_case,
}  # fmt: skip


def _pool_tokens(rng: np.random.Generator, longest: int, page_size: int, *, is_storm: bool) -> int:
    """From hardly enough for the longest request to room for many."""
    least = longest + 2 * page_size + 8
    times = rng.choice([2.0, 3.0, 4.0] if is_storm else [1.0, 1.3, 1.7, 2.5, 5.0])
    return -(-int(least * times) // page_size) * page_size


@dataclass(frozen=True, kw_only=True)
class _Load:
    """What requests are drawn from: mean lengths in tokens, mean gap between arrivals, how many end early."""

    num_requests: int
    prompt_tokens: float
    new_tokens: float
    least_new_tokens: int
    system_tokens: int
    gap_s: float
    pauses: float  # share of gaps that are long enough to leave the engine idle
    next_turns: float
    ignores_eos: bool
    stops: float


def _load(rng: np.random.Generator, page_size: int) -> _Load:
    return _Load(
        num_requests=int(rng.integers(5, 20)),
        prompt_tokens=float(rng.choice([20, 60, 200])),
        new_tokens=float(rng.choice([4, 12, 40])),
        least_new_tokens=1,
        system_tokens=int(rng.integers(1, 4 * page_size + 60)),
        gap_s=float(rng.choice([0.0, 1.0, 4.0, 20.0])) * STEP_S,
        pauses=0.05,
        next_turns=0.45,
        ignores_eos=bool(rng.random() < 0.25),
        stops=0.6,
    )


def _storm(rng: np.random.Generator, page_size: int) -> _Load:
    return _Load(
        num_requests=int(rng.integers(30, 70)),
        prompt_tokens=float(rng.choice([2, 6])),
        new_tokens=3.0,
        least_new_tokens=int(rng.choice([20, 40])) + page_size,
        system_tokens=int(rng.integers(1, 10)) if rng.random() < 0.7 else page_size + 5,
        gap_s=float(rng.choice([0.0, 1.0])) * STEP_S,
        pauses=0.04,
        next_turns=0.05,
        ignores_eos=False,
        stops=0.1,
    )


def _requests(rng: np.random.Generator, load: _Load) -> tuple[SGLangRequest, ...]:
    found: list[SGLangRequest] = []
    arrival_s, continued = 0.0, set[int]()
    for row in range(load.num_requests):
        arrival_s += PAUSE_S if rng.random() < load.pauses else _ticks(rng.exponential(load.gap_s))
        shared: Spans = ((1, load.system_tokens),) if rng.random() < 0.4 else ()
        follows = -1
        last_turns = [each for each in range(row) if each not in continued]
        if last_turns and rng.random() < load.next_turns:
            follows = int(rng.choice(last_turns))
            continued.add(follows)
            shared = found[follows].spans
            if rng.random() < 0.2:  # edited: only a part of it comes back
                shared = cut(shared, int(rng.integers(1, shared[-1][1] + 1)))
        found.append(_request(rng, load, row, shared=shared, follows=follows, arrival_s=arrival_s))
    return tuple(found)


def _request(
    rng: np.random.Generator, load: _Load, row: int, *, shared: Spans, follows: int, arrival_s: float
) -> SGLangRequest:
    prompt_tokens = (shared[-1][1] if shared else 0) + 1 + int(rng.exponential(load.prompt_tokens))
    max_new_tokens = load.least_new_tokens + int(rng.exponential(load.new_tokens))
    is_stopped = not load.ignores_eos and rng.random() < load.stops
    stop = int(rng.integers(1, max_new_tokens + 1)) if is_stopped else None
    return SGLangRequest(
        arrival_s=None if follows >= 0 else arrival_s,
        follows=follows,
        think_s=_ticks(rng.exponential(4 * STEP_S)),
        spans=(*shared, (row + 2, prompt_tokens + (stop or max_new_tokens))),
        prompt_tokens=prompt_tokens,
        max_new_tokens=max_new_tokens,
        num_tokens_to_stop=stop,
        ignore_eos=load.ignores_eos,
        routing_key=str(rng.choice(["", "a", "b", "c"])),
    )


def _ticks(seconds: float) -> float:
    return round(seconds / TICK_S) * TICK_S
