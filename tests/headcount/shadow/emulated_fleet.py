"""A fleet's metrics over simulated time, as its servers would tell them: chat sessions on the endpoint's own engine."""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from calibrate.readers.parsing.metrics_text import metric_samples
from calibrate.shadow.windows import Tick
from headcount.endpoint.answers import ChatAnswer
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Emulation, Job
from headcount.endpoint.metrics.vllm import VLLMMetrics
from simulator.deployment import Deployment
from simulator.live import LiveFleet

START_S = 1_750_000_000.0
OF_STEP_TIMES = ("pools", "step_time", "sampling_time")
TURNS = 4


@dataclass(kw_only=True)
class EmulatedFleet:
    """Sessions of TURNS requests begin at random, `rate(t)` requests per second in all; metrics every `interval_s`."""

    deployment: Deployment
    replicas: int = 1
    rate: Callable[[float], float] = lambda _: 4.0
    new_tokens: float = 300.0
    output_tokens: float = 150.0
    think_s: float = 20.0
    interval_s: float = 15.0
    seed: int = 0
    slow: Callable[[float], float] = lambda _: 1.0
    """How many times as long steps take from a time on."""
    emulation: Emulation = field(init=False)

    def __post_init__(self) -> None:
        self.emulation = Emulation(self._fleet(1.0), most=5000, seed=self.seed)

    def _fleet(self, factor: float) -> Any:
        return self.deployment.with_step_times(factor).fleet(self.replicas, "session-affinity")

    def ticks(self, until_s: float) -> Iterator[Tick]:
        """The metrics from time 0 on."""
        clock = Clock(self.emulation)
        registry = CollectorRegistry()
        registry.register(VLLMMetrics(clock, self.deployment, self.deployment.architecture.name))
        rng, factor, number = np.random.default_rng(self.seed), 1.0, 0
        coming: list[tuple[float, int, int, np.ndarray]] = [(0.0, 0, 0, np.zeros(0, np.int64))]
        following_s = 0.0
        while following_s <= until_s:
            if coming[0][0] < following_s:
                at_s, session, turn, said = heapq.heappop(coming)
                if turn == 0:  # the next session begins
                    gap_s = rng.exponential(TURNS / self.rate(at_s))
                    heapq.heappush(coming, (at_s + gap_s, session + 1, 0, np.zeros(0, np.int64)))
                heard = rng.integers(0, 1000, 1 + int(rng.exponential(self.new_tokens)))
                answer = rng.integers(0, 1000, 2 + int(rng.exponential(self.output_tokens)))
                self._advance(at_s)
                self._submit(np.concatenate([said, heard]), answer, session, at_s)
                if turn + 1 < TURNS:
                    again_s = at_s + 3.0 + rng.exponential(self.think_s)
                    heapq.heappush(coming, (again_s, session, turn + 1, np.concatenate([said, heard, answer])))
                continue
            self._advance(following_s)
            text = generate_latest(registry).decode()
            yield Tick(unix_s=START_S + following_s, servers={"server": list(metric_samples(text))})
            number += 1
            if self.slow(following_s) != factor:
                factor = self.slow(following_s)
                self._take_longer(factor)
            following_s = number * self.interval_s

    def _submit(self, prompt: np.ndarray, answer: np.ndarray, session: int, at_s: float) -> None:
        words = ChatAnswer(words=["a"] * len(answer), tokens=answer, finish_reason="length")
        stream = self.emulation.submit(
            Job(prompt=prompt, answer=words, max_tokens=len(answer), session=str(session)), at_s
        )
        assert stream is not None, "too many requests"

    def _advance(self, until_s: float) -> None:
        while self.emulation.advance(until_s):
            pass

    def _take_longer(self, factor: float) -> None:
        longer = LiveFleet(self._fleet(factor), most=5000, seed=self.seed).simulation.arrays
        for name in OF_STEP_TIMES:
            getattr(self.emulation.live.simulation.arrays, name)[:] = getattr(longer, name)
