"""About how large a load a deployment serves, in milliseconds and without a simulation.

Mean-value analysis of one engine: n sequences decode beside the prefill of those that arrive, a step takes what the
deployment's step times say, and by Little's law n = λ × tokens of an answer × time per token. A path of drawn requests
then shows how many miss the SLO: each waits for the prefill before it (Lindley's recursion), and its decoding for
prefill that comes later. Requests that find all KV blocks or sequences taken wait as in a queue of many servers (Halfin
and Whitt 1981), and the prefix cache keeps what was used within its characteristic time (Che et al. 2002). Clients that
give up miss the SLO, with each attempt; that their work ends, and begins anew, does not change the load here.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from files import special
from simulator.deployment import Deployment
from simulator.engines.engines import words_of
from simulator.engines.tuning import API_SERVER
from simulator.latency.model import AverageStep
from simulator.once import once
from simulator.study.bottleneck import API_SERVER_SHARE, BLOCKED_SHARE, step_cause
from simulator.study.loads import Load, UserLoad
from simulator.study.mean_steps import MeanSteps, Steps
from simulator.study.slo import SLO
from simulator.study.traffic import FloatArray, IntArray, Rows, Traffic, traffic_of
from simulator.study.waiting import stretched_s, waits_s
from workloads.populations.sessions import NO_TIME, AnswerTimes

PRUDENCE: Final = 0.92  # of what is worked out: a search that starts above capacity costs more than one from below
RESOLUTION, ROUGH_RESOLUTION = 1.04, 1.2  # of the number of sequences that decode; of the first look
ROUGHLY: Final = 1.25  # answer times are powers of it
_ROUGH_ROWS: Final = 512
_FEWEST: Final = 1e-3  # sequences that decode, on average over time
_NEVER_S: Final = 1e9
_SAMPLED: Final = 8  # one request in so many shows the means


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The largest load that should meet the SLO, and how it is served; `size` is never below the load's smallest.

    Where not even the smallest load is expected to meet the SLO, `attainment` lies below its target.
    """

    size: float  # users, or requests/s of a trace
    requests_per_s: float
    in_flight: float
    ttft_s: float  # the quantile of the attainment target
    tpot_s: float
    kv_usage: float
    attainment: float
    binding: str  # in the words of `simulator.study.bottleneck.what_binds`
    answers: AnswerTimes


@once
def estimate_users(deployment: Deployment, replicas: int, load: Load, slo: SLO, role: str | None = None) -> Estimate:
    """The capacity of so many replicas, which is not simulated; of those of a `role`, if disaggregated.

    The first estimate for a load draws its requests, which takes longer. Raises ValueError for a load that is neither
    users nor a trace.
    """
    engines = replicas * deployment.data_parallel_size
    traffic = traffic_of(load, engines, 1 if deployment.shares_kv_store else engines).in_role(role)
    rough, engine = (_Engine(deployment, engines, path) for path in (traffic.first(_ROUGH_ROWS), traffic))
    low, high = _Search(rough, load, slo).halve(_FEWEST, RESOLUTION * rough.most_decoding, ROUGH_RESOLUTION)
    search = _Search(engine, load, slo)
    low, high = search.halve(*search.bracket(low, high / low), RESOLUTION)
    point = search.served or engine.point(low, slo)
    size = PRUDENCE * (point.size + _queue(point, search.missed, slo)) if search.served else load.smallest
    return Estimate(
        size=max(load.round(size + 0.5 * traffic.is_closed), load.smallest),
        requests_per_s=point.requests_per_s,
        in_flight=point.in_flight,
        ttft_s=_quantile(point.ttft_s, slo.attainment),
        tpot_s=_quantile(point.tpot_s, slo.attainment),
        kv_usage=point.kv_usage,
        attainment=point.attainment,
        binding=_binding(deployment, search.missed, slo),
        answers=_answer_times(engine, search.served),
    )


def stationary_load(load: Load, deployment: Deployment, replicas: int, slo: SLO) -> Load:
    """The load as the long run has it where answers take as long as the estimate says; a trace has its own times."""
    if not isinstance(load, UserLoad):
        return load
    return replace(load, answers=estimate_users(deployment, replicas, load, slo).answers)


def _answer_times(engine: "_Engine", served: "_Point | None") -> AnswerTimes:
    """How long answers take by their tokens, roughly, so that deployments that are alike meet the same users.

    A long context lengthens every step of its own answer. NO_TIME where nothing is served, or users wait longer than
    they think: nobody knows how such a queue begins.
    """
    if served is None:
        return NO_TIME
    traffic, mean = engine.traffic, engine.mean
    own_s = engine.times.context_s * (traffic.prompt + traffic.output / 2 - mean.context)
    taken_s = served.ttft_s + (served.tpot_s + own_s) * mean.answer
    if not taken_s.mean() <= traffic.think_time_s:
        return NO_TIME
    columns = np.column_stack([np.ones(len(taken_s)), traffic.prompt, traffic.output])
    found = np.linalg.lstsq(columns, taken_s)[0].tolist()
    return AnswerTimes(**dict(zip(("answer_s", "prompt_token_s", "output_token_s"), map(_roughly, found), strict=True)))


def _roughly(value: float) -> float:
    """To the next power of ROUGHLY."""
    return float(ROUGHLY ** round(math.log(value, ROUGHLY))) if value > 0 else 0.0


def estimated_users(load: Load, found: Estimate, slo: SLO) -> int:
    """How many users an estimate stands for; 0 where not even the smallest load should meet the SLO."""
    if found.attainment < slo.attainment and found.size <= load.smallest:
        return 0
    e2e_s = found.in_flight / found.requests_per_s if found.requests_per_s else 0.0
    return int(load.users(found.size, requests_per_s=found.requests_per_s, e2e_mean_s=e2e_s))


@dataclass
class _Search:
    """Looks for the most decoding sequences under which the SLO is met, with the last points on either side."""

    engine: "_Engine"
    load: Load
    slo: SLO
    served: "_Point | None" = None
    missed: "_Point | None" = None

    def serves(self, decoding: float) -> bool:
        point = self.engine.point(decoding, self.slo)
        if point.size < self.load.smallest or point.attainment >= self.slo.attainment:
            self.served = point
            return True
        self.missed = point
        return False

    def bracket(self, near: float, step: float) -> tuple[float, float]:
        """Two numbers, a step apart, of which the smaller serves."""
        if self.serves(near):
            while self.serves(near * step):
                near *= step
            return near, near * step
        while near > _FEWEST and not self.serves(near / step):
            near /= step
        return near / step, near

    def halve(self, low: float, high: float, ratio: float) -> tuple[float, float]:
        while high / low > ratio:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.serves(middle) else (low, middle)
        return low, high


@dataclass(frozen=True, kw_only=True, eq=False)
class _Room:
    """What running sequences take of what there is; who finds none waits, exponentially long."""

    resource: str
    usage: float
    chance: float  # to find none
    wait_s: float


@dataclass(frozen=True, kw_only=True, eq=False)
class _Flow:
    """Mean values of one engine."""

    steps: Steps
    new: IntArray  # tokens of prompts that no cache holds
    rate: float  # requests/s
    token_s: float  # between two tokens of an answer, prefill of others included
    others: float  # share of the load that one request meets
    thinking_share: float  # of users: the fewer think, the less their number in flight varies


@dataclass(frozen=True, kw_only=True, eq=False)
class _Point:
    """One load and how it is served; times by request of the path."""

    size: float
    requests_per_s: float
    in_flight: float
    ttft_s: FloatArray
    late_s: FloatArray  # beyond the limit on TTFT
    tpot_s: FloatArray
    kv_usage: float
    attainment: float
    ttft_misses: float
    tpot_misses: float
    api_server_share: float  # of the mean TTFT
    room: _Room
    varies_s: float  # standard deviation of the wait of a queue that always is, as users come back from thinking
    step: AverageStep


class _Engine:
    """One of several that are alike."""

    def __init__(self, deployment: Deployment, engines: int, traffic: Traffic) -> None:
        self.traffic, self.mean = traffic, MeanSteps(deployment, traffic)
        self.config, self.times, self.engines = self.mean.config, deployment.latency.step_times, engines
        self.answer, self.api_servers = float(self.mean.answer.mean()), deployment.api_servers
        self._words = words_of(deployment.args)
        # A step is as long as that of its slowest rank; stages work on several steps at once.
        self.interference = self.mean.ranks / self.config.pipeline_parallel_size
        self._front_s = self.times.ingress_request_s + self.times.ingress_token_s * traffic.prompt.astype(np.float64)
        self._front_mean_s, self._front_square = float(self._front_s.mean()), float((self._front_s**2).mean())
        by_new = np.argsort(self._new(math.inf, slice(None)), kind="stable")
        self._sample = by_new[_SAMPLED // 2 :: _SAMPLED] if len(by_new) > _SAMPLED else by_new

    @property
    def most_decoding(self) -> float:
        return max(min(self.config.max_num_seqs, self.mean.usable_blocks / self.mean.held_blocks), 1.0)

    def point(self, decoding: float, slo: SLO) -> _Point:
        """The load under which so many sequences decode on average."""
        flow = self._flow(decoding)
        ttft_s, tpot_s = self._times_s(flow)
        decode_s = flow.token_s * self.answer
        prefill_s = float((flow.steps.chunks * flow.steps.step_s + flow.steps.prefill_s).mean())
        room = self._room(flow, decode_s + prefill_s)
        asked_s = slo.ttft_limit_s(flow.new)
        limit_s = np.minimum(self.traffic.patience_s, asked_s)
        in_time = np.where(
            ttft_s <= limit_s, 1 - room.chance * np.exp(np.minimum(ttft_s - limit_s, 0.0) / room.wait_s), 0.0
        )
        fast = ~slo.misses_tpot(tpot_s) | (self.traffic.output == 1)
        in_timeout = ttft_s + tpot_s * (self.traffic.output - 1) <= self.traffic.library.timeout_s
        attempts = 1 + self.traffic.library.num_retries * float(1 - in_timeout.mean())  # all of them miss
        total = flow.rate * self.engines
        e2e_s = float(ttft_s.mean()) + room.chance * room.wait_s + decode_s
        users = total * (self.traffic.think_time_s + e2e_s)
        return _Point(
            size=users if self.traffic.is_closed else total,
            requests_per_s=total,
            in_flight=total * e2e_s,
            ttft_s=ttft_s,
            late_s=ttft_s - asked_s,
            tpot_s=tpot_s,
            kv_usage=room.usage,
            attainment=float((in_time * fast * in_timeout).mean()) / attempts if room.chance < 1 else 0.0,
            ttft_misses=1 - float(in_time.mean()),
            tpot_misses=1 - float((fast & in_timeout).mean()) / attempts,
            api_server_share=float((self._ingress_s(flow.rate) - self.times.ingress_s).mean() / ttft_s.mean()),
            room=room,
            varies_s=math.sqrt(self.traffic.think_time_s / total) if self.traffic.is_closed else math.inf,
            step=self._average_step(flow),
        )

    # -- mean values

    def _flow(self, decoding: float) -> _Flow:
        others, kept_for = 1.0, math.inf
        for last in (False, False, True):
            rows = slice(None) if last else self._sample
            new = self._new(kept_for, rows)
            steps = self.mean.steps(1 + decoding * others, new, rows)
            prefill_s = float(steps.prefill_s.mean())
            held_up_s = decoding * others * prefill_s * self.interference
            rate = decoding / (self.answer * steps.token_s + held_up_s)
            thinking = rate * self.traffic.think_time_s
            users = self.engines * (decoding + thinking + rate * (prefill_s + 2 * steps.step_s))
            if not last:
                others = max(1 - 1 / users, 0.0) if self.traffic.is_closed else 1.0
                kept_for = self._kept_for(rate, decoding)
        return _Flow(
            steps=steps,
            new=new,
            rate=rate,
            token_s=decoding / (rate * self.answer),
            others=others,
            thinking_share=1 - self.engines * decoding / users if self.traffic.is_closed else 1.0,
        )

    def _new(self, kept_for: float, rows: Rows) -> IntArray:
        """Tokens of prompts that no cache holds."""
        prompt, size = self.traffic.prompt[rows], self.config.block_size
        if not self.config.enable_prefix_caching:
            return prompt
        place = max(int(np.searchsorted(self.traffic.cache.kept_for, kept_for, side="right")) - 1, 0)
        new: IntArray = prompt - self.traffic.cache.tokens[place][rows] // size * size
        return new

    def _kept_for(self, rate: float, decoding: float) -> float:
        """How long the prefix cache keeps what is not used, in the unit of `Cache`: Che's approximation."""
        free = max(self.mean.usable_blocks - decoding * self.mean.held_blocks, 0.0) / self.mean.blocks_per_token
        tier = self.config.host_tier
        sharing = self.engines if tier is not None and tier.is_shared else 1
        kept = free if tier is None else max(free, tier.num_chunks * self.config.block_size / sharing)
        held = kept / rate if self.traffic.is_closed else kept * self.engines
        return float(np.interp(held, self.traffic.cache.size, self.traffic.cache.kept_for))

    # -- requests

    def _times_s(self, flow: _Flow) -> tuple[FloatArray, FloatArray]:
        """TTFT and TPOT of each request of the path, were there room for all."""
        steps, stages = flow.steps, self.config.pipeline_parallel_size
        rate = max(flow.rate * flow.others, 1 / _NEVER_S)
        at = np.cumsum(self.traffic.gap) / rate
        service_s = (steps.prefill_s + steps.share * steps.step_s) / stages
        start = at + waits_s(at, service_s)
        busy = -math.expm1(1 - steps.decodes)  # the chance that others decode
        # A request joins at the end of a step, or of those decided already; prefill that arrives meanwhile joins too.
        boundary_s = (self.traffic.uniform + self.config.plans_in_flight - 1) / stages * steps.step_s * busy
        meanwhile = 1 + rate * float(steps.prefill_s.mean()) / stages
        own_s = steps.chunks * steps.step_s + steps.prefill_s
        ttft_s = self._ingress_s(flow.rate) + (start - at) + boundary_s * meanwhile + own_s
        token_s = np.maximum(steps.token_s + self.traffic.normal * self._spread_s(flow), steps.token_s / 2)
        # However long the prefill of others, some decodes go on beside it.
        held_up_s = np.minimum(steps.prefill_s * self.interference, 0.98 * service_s)
        decode_s = stretched_s(start, service_s, held_up_s, self.mean.answer * token_s)
        return np.asarray(ttft_s, dtype=np.float64), decode_s / self.mean.answer

    def _ingress_s(self, rate: float) -> FloatArray:
        """At the front end: its own work, the mean wait behind that of others (M/G/c), the way to the scheduler."""
        arrivals, count = rate * self.mean.ranks, self.api_servers
        busy = min(arrivals * self._front_mean_s / count, 0.99)
        of_several: float = busy ** (math.sqrt(2 * (count + 1)) - 2) / count**2  # Sakasegawa; 1 for one API server
        return self._front_s + arrivals * self._front_square / (2 * (1 - busy)) * of_several + self.times.ingress_s

    def _spread_s(self, flow: _Flow) -> FloatArray:
        """Standard deviation of each answer's mean time per token, as other sequences come and go (M/G/∞)."""
        others, time_s = flow.steps.decodes - 1, self.mean.answer * flow.token_s
        memory_s = float((time_s**2).mean() / (2 * time_s.mean()))
        count = others * flow.thinking_share / self.engines  # engines even out what the router sends them
        count *= self.traffic.dispersion_at(flow.rate * self.engines * memory_s)
        contexts = others * self.mean.context_variance * self.times.context_s**2
        lasting = np.maximum(time_s / memory_s, 1e-3)
        averaged = 2 * (lasting - 1 + np.exp(-lasting)) / lasting**2
        return np.asarray(np.sqrt((count * flow.steps.growth_s**2 + contexts) * averaged))

    def _room(self, flow: _Flow, stay_s: float) -> _Room:
        """The scarcer of KV blocks and sequences."""
        blocks = self.mean.usable_blocks / self.mean.held_blocks
        found = (
            self._room_for(blocks, self.mean.held_peakedness, self._words.kv, flow, stay_s),
            self._room_for(self.config.max_num_seqs, 1.0, self._words.running, flow, stay_s),
        )
        scarcer = max(found, key=lambda room: room.chance)
        return _Room(resource=scarcer.resource, usage=found[0].usage, chance=scarcer.chance, wait_s=scarcer.wait_s)

    def _room_for(self, most: float, peakedness: float, resource: str, flow: _Flow, stay_s: float) -> _Room:
        """Room for so many; all engines together, as a queue of many servers."""
        running = flow.rate * stay_s
        free = (most - running) * self.engines
        if free <= 0:
            return _Room(resource=resource, usage=1.0, chance=1.0, wait_s=_NEVER_S)
        burst = self.traffic.dispersion_at(running * self.engines) - 1
        spread = max(peakedness + burst, 0.0)  # 0: equal requests, evenly spaced
        sd = math.sqrt(running * self.engines * spread * max(flow.thinking_share, 1e-3))
        beta = free / max(sd, free / 30)
        chance = 1 / (1 + beta * float(special.ndtr(beta)) * math.sqrt(2 * math.pi) * math.exp(beta**2 / 2))
        return _Room(resource=resource, usage=running / most, chance=chance, wait_s=stay_s / free)

    def _average_step(self, flow: _Flow) -> AverageStep:
        steps = flow.steps
        arrivals = flow.rate * flow.token_s  # in a step
        new = float(steps.share.mean()) * self.config.token_budget
        work = new * (float(self.traffic.prompt.mean()) - new / 2)
        return AverageStep(
            tokens=steps.decodes + arrivals * new,
            sequences=steps.decodes + arrivals,
            sampled=steps.decodes + arrivals,
            decode_context=steps.decodes * self.mean.context,
            window_context=steps.decodes * self.mean.window_context,
            prefill_tokens=arrivals * new,
            prefill_work=arrivals * work,
            encoder_s=arrivals * steps.encoder_s,
            prefill_share=-math.expm1(-arrivals),
        )


def _quantile(values: FloatArray, share: float) -> float:
    return float(np.partition(values, place := min(int(share * len(values)), len(values) - 1))[place])


def _queue(point: _Point, missed: _Point | None, slo: SLO) -> float:
    """Users who may wait for room at a time: where few think, the queue hardly varies, and TTFT has time for it."""
    if missed is None or slo.ttft_s is None or math.isinf(point.varies_s):
        return 0.0
    if missed.room.chance <= BLOCKED_SHARE or missed.tpot_misses > 1 - slo.attainment:
        return 0.0
    varies_s = float(special.ndtri(slo.attainment)) * point.varies_s
    left_s = -_quantile(point.late_s, slo.attainment) - varies_s
    return point.requests_per_s * max(left_s, 0.0)


def _binding(deployment: Deployment, point: _Point | None, slo: SLO) -> str:
    if point is None:
        return "nothing yet"
    limit = "TTFT" if point.ttft_misses >= point.tpot_misses else "TPOT"
    if limit == "TTFT" and point.api_server_share > API_SERVER_SHARE:
        return f"{limit}: {API_SERVER}"
    if limit == "TTFT" and point.room.chance > BLOCKED_SHARE:
        return f"{limit if slo.ttft_s else 'queue'}: {point.room.resource}"
    return (
        f"{limit}: {step_cause(deployment.latency, point.step, limit, (slo.tpot_s or 0) / float(point.tpot_s.mean()))}"
    )
