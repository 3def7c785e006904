"""Jobs: questions that are answered one after the other, each in a process that can be stopped."""

from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import count
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Condition, Event, Thread
from time import monotonic
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.web.scenario import Scenario
from headcount.web.worker import Answered, Refused, Seen, work

TICK_S: Final = 0.2  # between looks at whether a job is to be stopped
SPARE_AFTER_S: Final = 4.0  # of a job: then the next one's process begins
MOST_WAITING: Final = 20  # jobs of people
MOST_BACKGROUND: Final = 4  # jobs that sliders asked for, beside them; the newest count
MOST_ENDED: Final = 200  # jobs whose end is remembered


class BusyError(Exception):
    """So many jobs wait that no more are taken."""


class State(StrEnum):
    """How far a job is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What a job may take, and how many run side by side."""

    side_by_side: int = 1
    seconds: float = 900.0
    memory_bytes: int = 4 << 30


@dataclass(kw_only=True, eq=False)
class Job:
    """A scenario on its way to an answer."""

    scenario: Scenario
    key: str
    is_background: bool = False
    state: State = State.WAITING
    seen: Seen | None = None
    estimate: str = ""  # the first figure, until better ones are found
    found: list[str] = field(default_factory=list)  # what was found on the way, in lines
    blocks: tuple[Json, ...] = ()  # the answer so far
    answered: Answered | None = None
    why: str = ""  # it failed
    is_fault: bool = False
    asked_s: float = field(default_factory=monotonic)
    began_s: float | None = None
    stop: Event = field(default_factory=Event)

    @property
    def is_over(self) -> bool:
        return self.state not in (State.WAITING, State.RUNNING)


class Jobs:
    """The queue: jobs of people first, then those that sliders asked for.

    `folder_of` makes the folder with a job's files, `finish` gets a job that has an answer.
    """

    def __init__(
        self,
        bounds: Bounds,
        folder_of: Callable[[Scenario], AbstractContextManager[Path]],
        finish: Callable[[Job], None],
    ) -> None:
        self._bounds, self._folder_of, self._finish = bounds, folder_of, finish
        self._jobs: OrderedDict[str, Job] = OrderedDict()
        self._changed = Condition()
        self._is_closed = False
        self._slots = [Thread(target=self._serve, daemon=True) for _ in range(bounds.side_by_side)]

    def start(self) -> None:
        """Begin to answer."""
        for slot in self._slots:
            slot.start()

    def ask(self, scenario: Scenario, key: str, *, is_background: bool = False) -> Job:
        """The job of that key, begun anew where it is over. Raises BusyError."""
        with self._changed:
            known = self._jobs.get(key)
            if known is not None and not known.is_over:
                known.is_background &= is_background
                return known
            waiting = [job for job in self._of(State.WAITING) if job.is_background == is_background]
            if is_background and len(waiting) >= MOST_BACKGROUND:
                waiting[0].state = State.CANCELLED  # somebody moved on
            elif len(waiting) >= MOST_WAITING:
                raise BusyError(f"{len(waiting)} questions wait already; try again in a minute, or cancel some")
            job = Job(scenario=scenario, key=key, is_background=is_background)
            self._jobs.pop(key, None)
            self._jobs[key] = job
            if not is_background:
                self._make_way()
            self._forget()
            self._changed.notify_all()
            return job

    def find(self, key: str) -> Job | None:
        with self._changed:
            return self._jobs.get(key)

    def cancel(self, key: str) -> None:
        """Stop it, if it is not over."""
        with self._changed:
            job = self._jobs.get(key)
            if job is not None and job.state is State.WAITING:
                job.state = State.CANCELLED
            if job is not None:
                job.stop.set()

    def waiting(self, job: Job) -> int:
        """How many run or wait before it."""
        with self._changed:
            others = [each for each in self._of(State.WAITING) if each.asked_s < job.asked_s and not each.is_background]
            return len(others) + len(self._of(State.RUNNING))

    def close(self) -> None:
        """Stop everything."""
        with self._changed:
            self._is_closed = True
            for job in self._jobs.values():
                job.stop.set()
            self._changed.notify_all()
        for slot in self._slots:
            if slot.is_alive():
                slot.join(timeout=5)

    def _of(self, state: State) -> list[Job]:
        return [job for job in self._jobs.values() if job.state is state]

    def _make_way(self) -> None:
        """A slider's job ends where a person waits; its finished simulations are kept."""
        running = self._of(State.RUNNING)
        if len(running) >= self._bounds.side_by_side:
            for job in [job for job in running if job.is_background][:1]:
                job.stop.set()

    def _forget(self) -> None:
        over = [key for key, job in self._jobs.items() if job.is_over]
        for key in over[: max(len(over) - MOST_ENDED, 0)]:
            del self._jobs[key]

    def _serve(self) -> None:
        spares: list[_Worker] = []  # begun before they are needed: to import takes seconds
        while True:
            try:
                spares = spares or [_Worker(self._bounds.memory_bytes)]
            except OSError:  # no process to be had now; the next job tries again
                spares = []
            job = self._next()
            if job is None:
                break
            try:
                self._run(job, spares)
            except HeadcountError as error:
                job.why, job.state = str(error), State.FAILED
            except OSError as error:  # a full disk, no process to be had
                job.why, job.state = f"the server cannot run it: {error.strerror or error}", State.FAILED
            except Exception as error:  # the queue goes on
                job.why, job.is_fault, job.state = f"{type(error).__name__}: {error}", True, State.FAILED
        for spare in spares:
            spare.end()

    def _run(self, job: Job, spares: list["_Worker"]) -> None:
        with self._folder_of(job.scenario) as folder:
            ready = [spares.pop() for _ in spares[:]]
            worker = next((each for each in ready if each.is_alive), None) or _Worker(self._bounds.memory_bytes)
            try:
                self._answer(job, folder, worker, spares)
            finally:
                worker.end()

    def _next(self) -> Job | None:
        with self._changed:
            while not self._is_closed:
                waiting = sorted(self._of(State.WAITING), key=lambda job: (job.is_background, job.asked_s))
                if waiting:
                    waiting[0].state, waiting[0].began_s = State.RUNNING, monotonic()
                    return waiting[0]
                self._changed.wait()
        return None

    def _answer(self, job: Job, folder: Path, worker: "_Worker", spares: list["_Worker"]) -> None:
        worker.pipe.send((job.scenario, folder))
        began_s = monotonic()
        while not job.stop.is_set():
            if not spares and job.seen is not None and monotonic() > began_s + SPARE_AFTER_S:
                spares.append(_Worker(self._bounds.memory_bytes))
            if monotonic() > began_s + self._bounds.seconds:
                job.why = f"it took longer than {self._bounds.seconds:,.0f} s; ask for fewer GPU counts or users"
                job.state = State.FAILED
                return
            if worker.pipe.poll(TICK_S):
                self._hear(job, worker)
                if job.is_over:
                    return
        job.state = State.CANCELLED

    def _hear(self, job: Job, worker: "_Worker") -> None:
        try:
            told = worker.pipe.recv()
        except (EOFError, OSError):
            job.why, job.state = f"its process ended by itself ({worker.exit_text()}); ask again", State.FAILED
            return
        if isinstance(told, Seen):
            job.seen, job.blocks = told, told.so_far or job.blocks
            job.estimate = told.estimate or job.estimate
            job.found += [told.found] if told.found else []
        elif isinstance(told, Refused):
            job.why, job.is_fault, job.state = told.why, told.is_fault, State.FAILED
        else:
            job.answered = told
            self._finish(job)
            job.state = State.DONE


class _Worker:
    """A process that has imported everything and waits for an order."""

    _numbers = count()

    def __init__(self, memory_bytes: int) -> None:
        context = get_context("spawn")  # a copy of a process with threads may hang
        self.pipe: Connection
        self.pipe, other = context.Pipe()
        self._process = context.Process(
            target=work, args=(other, memory_bytes), daemon=True, name=f"job-{next(self._numbers)}"
        )
        self._process.start()
        other.close()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def exit_text(self) -> str:
        self._process.join(timeout=2)
        code = self._process.exitcode
        return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"

    def end(self) -> None:
        """However it is."""
        self._process.kill()
        self._process.join(timeout=5)
        self.pipe.close()
