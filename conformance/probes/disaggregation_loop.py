"""Prefill engines and decode engines under one clock: who prefills what, who reads it when, when steps end.

Imported by probes, which other interpreters run, so with the standard library alone. An engine core blocks where it
waits for a step, so each runs in a thread of its own; one of all threads runs at a time.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any


class Over(BaseException):
    """Ends a thread; vLLM catches what is an Exception."""


class Turns:
    """Lets a function that waits run in turns with its caller: one of the two runs at a time."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._is_over = False
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(run,), daemon=True)
        self._thread.start()

    def _run(self, run: Callable[[], None]) -> None:
        self._go.acquire()
        try:
            if not self._is_over:
                run()
        except Over:
            pass
        except BaseException as error:
            self._error = error
        self._rest.release()

    def resume(self) -> None:
        """Let it run until it pauses."""
        self._go.release()
        self._rest.acquire()
        if self._error is not None:
            raise self._error

    def pause(self) -> None:
        """Called by the function itself: let the caller go on."""
        self._rest.release()
        self._go.acquire()
        if self._is_over:
            raise Over

    def close(self) -> None:
        """It does not run any more."""
        self._is_over = True
        self._go.release()
        self._thread.join()


class BusyLoop:
    """Steps an engine core as vLLM's busy loop does; while nothing but reads is to be waited for, each `poll_s`."""

    def __init__(self, number: int, make_core: Callable[["BusyLoop"], Any], load: Any, poll_s: float) -> None:
        self.number = number
        self.is_in_step, self.is_idle = False, True
        self._load, self._poll_s, self._wake_s = load, poll_s, math.inf
        self._has_slept = False
        self.core = make_core(self)
        self.turns = Turns(self._run)

    def wake_s(self) -> float:
        """When it goes on by itself."""
        return self.core.next_transfer_s if self.is_idle else self._wake_s

    def sleep_in_step(self, end_s: float) -> None:
        """Called by the core: its oldest step ends then."""
        self.is_in_step = self._has_slept = True
        self._pause(end_s)
        self.is_in_step = False

    def _pause(self, wake_s: float, *, is_idle: bool = False) -> None:
        self._wake_s, self.is_idle = wake_s, is_idle
        self.turns.pause()
        self._wake_s, self.is_idle = math.inf, False

    def _run(self) -> None:
        core, self.is_idle = self.core, False
        while True:
            has_work, may_change = core.has_unfinished, core.has_transfers or core.is_computing
            num_begun = core.num_begun
            if not (has_work or core.has_news):
                self._pause(math.inf, is_idle=True)
                continue
            executed = core.advance()
            if self._has_slept:  # arrivals enter before it decides
                self._has_slept = False
                self._pause(math.inf)
            if executed or core.is_computing or not has_work or core.records[-1]["preempted"]:
                continue
            if may_change or core.num_begun > num_begun:
                self._pause(self._load.now_s + self._poll_s)
            else:
                self._pause(math.inf, is_idle=True)  # nothing fits: vLLM would ask again for ever


class DisaggregatedDeployment:
    """Engines that prefill, the first ones, and engines that decode; each request goes to the next of either in turn.

    `network` knows who keeps whose KV for how long, and when transfers are over. Where decode engines pull, what a
    prefill engine has done comes to its decode engine `dispatch_s` later; where prefill engines push, a request comes
    to both at once. Blocks that nobody asks for are kept for `lease_s`.
    """

    def __init__(self, load: Any, loops: Sequence[BusyLoop], network: Any, case: dict[str, Any]) -> None:
        self.load, self.loops, self.network = load, loops, network
        self._num_prefill = case["num_prefill"]
        self._dispatch_s, self._lease_s = case["dispatch_s"], case["lease_s"]
        self._pushes = case["pushes"]
        self._next = [0, 0]
        self._where: dict[int, list[BusyLoop]] = {}

    def run(self, max_steps: int) -> list[list[dict[str, Any]]]:
        """Every record of each engine."""
        try:
            while all(len(loop.core.records) < max_steps for loop in self.loops):
                now_s = min(self.load.next_s(), *(loop.wake_s() for loop in self.loops))
                if now_s == math.inf:
                    break
                self.load.now_s = now_s
                self._instant(now_s)
        finally:
            for loop in self.loops:
                loop.turns.close()
        return [loop.core.records[:max_steps] for loop in self.loops]

    def _instant(self, now_s: float) -> None:
        """Steps end, then requests come and go, then schedulers decide."""
        awake = [loop for loop in self.loops if loop.wake_s() <= now_s]
        for loop in awake:
            if loop.is_in_step:
                loop.turns.resume()
                self._take_finished(loop, now_s)
        for arrival_s, row in self.load.due():
            if arrival_s == math.inf:
                self._abort(row)
            elif not self.load.has_ended(row):
                loops = self._enter(row, arrival_s)
                awake += [loop for loop in loops if loop.is_idle and loop not in awake]
        for loop in awake:
            loop.turns.resume()

    def _abort(self, row: int) -> None:
        """The client leaves."""
        for loop in self._where.get(row, ()):
            loop.core.abort(row)
        if self._pushes:
            self.network.leave(row)

    def _take_finished(self, loop: BusyLoop, now_s: float) -> None:
        for row in loop.core.take_finished():
            self._where[row].remove(loop)
            if loop.number >= self._num_prefill:
                self.load.follow_up([row])
                continue
            self.network.hold(loop.number, row, now_s + self._lease_s)
            if not self._pushes:
                self.load.come_again(row, now_s + self._dispatch_s)

    def _enter(self, row: int, arrival_s: float) -> list[BusyLoop]:
        """A request comes to an engine, or to one of either kind."""
        decodes = row in self.network.sources
        roles = [False, True] if self._pushes else [decodes]
        loops = self._where[row] = [self._next_loop(role) for role in roles]
        if self._pushes:
            self.network.send(row, *(loop.number for loop in loops))
        elif decodes:
            self.network.expect(row)
        for role, loop in zip(roles, loops, strict=True):
            if role:
                loop.core.enter_prefilled(row, arrival_s, self.loops[self.network.sources[row]].core)
            else:
                loop.core.enter(row, arrival_s)
        return [*loops]

    def _next_loop(self, decodes: bool) -> BusyLoop:
        engine = self._next[decodes]
        first, end = (self._num_prefill, len(self.loops)) if decodes else (0, self._num_prefill)
        self._next[decodes] = (engine + 1) % (end - first)
        return self.loops[first + engine]
