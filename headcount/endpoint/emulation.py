"""Requests in, tokens out at their simulated times: no network, no clock of its own."""

import asyncio
import math
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from headcount.endpoint.answers import ChatAnswer
from headcount.endpoint.contents import Blocks, Contents, Tokens
from headcount.endpoint.figures import Figures
from headcount.endpoint.metrics import sglang_reports as sglang
from headcount.endpoint.metrics import vllm_steps as vllm
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet
from simulator.live import LiveFleet
from workloads.requests import IntArray

REMEMBERED = 4  # times what the KV caches hold: names of contents
REMEMBERED_SESSIONS = 100_000


@dataclass(frozen=True, kw_only=True)
class Job:
    """One request, with the answer that it will get."""

    prompt: IntArray
    answer: ChatAnswer
    max_tokens: int
    priority: int = 0
    session: str | None = None
    salt: str = ""
    is_streamed: bool = False


@dataclass(kw_only=True, eq=False)
class Stream:
    """A request's answer as it comes; `changed` is set when there is more, or when nothing will come."""

    job: Job
    row: int
    arrival_s: float
    engine: int = -1  # known with the first token
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    num_tokens: int = 0
    num_taken: int = 0
    oldest_s: float = math.nan  # when the first of the tokens came that nobody has taken
    last_s: float = math.nan
    first_s: float = math.nan
    cached_tokens: int = 0
    is_done: bool = False
    is_gone: bool = False
    failure: str = ""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.is_done or self.is_gone or bool(self.failure)

    def take(self) -> tuple[list[str], float]:
        """The words that came since the last call, and when the first of them did."""
        words = self.job.answer.words[self.num_taken : self.num_tokens]
        self.num_taken = self.num_tokens
        return words, self.oldest_s

    def give(self, count: int, now_s: float) -> None:
        if self.num_taken == self.num_tokens:
            self.oldest_s = now_s
        self.num_tokens += count
        self.last_s = now_s
        self.changed.set()


class Emulation:
    """A fleet that answers. Token times are those that `headcount simulate` finds for the same requests."""

    def __init__(self, fleet: Fleet, *, most: int, seed: int = 0) -> None:
        self.live = LiveFleet(fleet, most=most, seed=seed)
        self.num_aborted = 0
        engine, num_engines = fleet.pools[0].engine, fleet.num_engines
        self._has_halves = isinstance(engine, SGLangConfig)  # SGLang counts streamed answers apart
        self._contents = _contents(engine, REMEMBERED * fleet.num_usable_blocks)
        if isinstance(engine, SGLangConfig):
            self.figures = Figures(2 * num_engines, sglang.BOUNDS)
            self.reports: sglang.Reports | vllm.Steps = sglang.Reports(num_engines)
        else:
            self.figures = Figures(num_engines, vllm.bounds(engine.max_model_len))
            self.reports = vllm.Steps(self.figures, num_engines)
        self._streams: dict[int, Stream] = {}
        self._served: OrderedDict[str, int] = OrderedDict()  # where each session was served last

    @property
    def next_s(self) -> float:
        return self.live.next_s

    @property
    def num_in_flight(self) -> int:
        """Requests that wait or run."""
        return len(self._streams)

    def submit(self, job: Job, arrival_s: float) -> Stream | None:
        """Let a request arrive; None where there are too many already."""
        tokens, answer = len(job.prompt), job.answer.tokens
        row = self.live.submit(
            arrival_s,
            tokens,
            len(answer),
            self._contents.spans(np.concatenate([job.prompt, answer]), job.salt),
            max_tokens=job.max_tokens,
            priority=job.priority,
            last_engine=self._served.get(job.session) if job.session else None,
        )
        if row is None:
            return None
        self._streams[row] = Stream(job=job, row=row, arrival_s=arrival_s)
        return self._streams[row]

    def advance(self, until_s: float) -> bool:
        """Give out what comes at the next instant; False where there is none up to `until_s`."""
        instant = self.live.advance(until_s)
        if instant is None:
            return False
        now_s, totals = instant.time_s, self.live.simulation.totals
        given = zip(instant.requests.tolist(), instant.num_tokens.tolist(), strict=True)
        for row, count in sorted(given, key=lambda each: self._streams[each[0]].num_tokens > 0):  # first tokens first
            stream = self._streams[row]
            if stream.num_tokens == 0:
                record = self.live.record(row)
                stream.first_s, stream.engine = now_s, int(record["replica"])
                stream.cached_tokens = int(record["cached_tokens"])
                self.figures.began(self._series(stream), stream.arrival_s, now_s, record)
            else:
                self.figures.went_on(self._series(stream), now_s - stream.last_s)
            stream.give(count, now_s)
            self.figures.tokens[self._series(stream)] += count
        for row in instant.finished:
            self._finish(row)
        self.figures.end_instant()
        self.reports.note(now_s, totals)
        return True

    def _series(self, stream: Stream) -> int:
        """Which of the figures a request counts in."""
        return 2 * stream.engine + stream.job.is_streamed if self._has_halves else stream.engine

    def hang_up(self, stream: Stream, now_s: float) -> None:
        """The client has gone: its engine aborts the request."""
        stream.is_gone = True
        self.num_aborted += 1
        self.live.abort(stream.row, now_s)
        self._end(stream)

    def fail(self, why: str) -> None:
        """End every answer: nothing more will come."""
        for stream in list(self._streams.values()):
            stream.failure = why
            self._end(stream)

    def _finish(self, row: int) -> None:
        stream, record = self._streams[row], self.live.record(row)
        stream.is_done = True
        engine = int(record["replica"])
        if stream.job.session:
            self._served[stream.job.session] = engine
            self._served.move_to_end(stream.job.session)
            if len(self._served) > REMEMBERED_SESSIONS:
                self._served.popitem(last=False)
        self.figures.finished(self._series(stream), record, stream.job.answer.finish_reason, stream.job.max_tokens)
        self._end(stream)

    def _end(self, stream: Stream) -> None:
        del self._streams[stream.row]
        stream.changed.set()


def _contents(engine: EngineConfig | SGLangConfig, most_blocks: int) -> Contents:
    if isinstance(engine, SGLangConfig):
        return Tokens(most=most_blocks * engine.page_size)
    return Blocks(engine.block_size, lookahead=engine.hash_lookahead_tokens, most=most_blocks)


def blocks_missing(engine: EngineConfig, num_tokens: int) -> int:
    """How many KV blocks more than the engine has a request of so many tokens needs; 0: it can be served."""
    needed = sum(math.ceil(num_tokens / size) for size in engine.group_block_sizes)
    return max(needed - (engine.num_gpu_blocks - 1), 0)
