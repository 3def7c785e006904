"""Lets a simulated fleet run in time with the clock on the wall."""

import asyncio
import time
import traceback

from headcount.endpoint.emulation import Emulation, Job, Stream
from headcount.endpoint.figures import Delays

INSTANTS_AT_ONCE = 64  # before answers that came are sent
POLLED_S = 0.0015  # before an instant: loops wake up to that much late, uvloop's whole milliseconds


class Clock:
    """Runs an emulation `speed` times as fast as the wall, on asyncio's loop.

    An arrival is entered when it came, an instant is simulated once its time has come: nothing that happens can change
    what was given out.
    """

    def __init__(self, emulation: Emulation, *, speed: float = 1.0) -> None:
        self.emulation, self.speed = emulation, speed
        self.delays = Delays()
        self.failure = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started = 0.0
        self._alarm: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Simulated time begins now."""
        self._loop = asyncio.get_running_loop()
        self._started = self.now()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        assert self._loop is not None, "the clock was not started"
        return self._loop

    @staticmethod
    def now() -> float:
        """On the wall. A loop's own time may be that of its last wake-up."""
        return time.monotonic()

    def simulated(self, wall_s: float) -> float:
        return (wall_s - self._started) * self.speed

    def wall(self, simulated_s: float) -> float:
        """When on the loop's clock."""
        return self._started + simulated_s / self.speed

    def submit(self, job: Job, came: float) -> Stream | None:
        """Let a request arrive that came at `came` on the loop's clock; None where there are too many, or a failure."""
        now_s = self._reach(came)
        stream = None if self.failure else self.emulation.submit(job, now_s)
        self._set_alarm()
        return stream

    def hang_up(self, stream: Stream) -> None:
        """Its client has gone, or needs nothing more."""
        if stream.is_over:
            return
        now_s = self._reach(self.now())
        if not stream.is_over:  # its last token may have come
            self.emulation.hang_up(stream, now_s)
        self._set_alarm()

    def left(self, token_s: float) -> None:
        """A token of that simulated time has left."""
        self.delays.add(self.now() - self.wall(token_s))

    def _reach(self, wall_s: float) -> float:
        """Simulate up to a time on the wall; returns the simulated time."""
        now_s = max(self.simulated(wall_s), self.emulation.live.now_s)
        while self._advance(now_s):
            pass
        return now_s

    def _run(self) -> None:
        now_s = self.simulated(self.now())
        for _ in range(INSTANTS_AT_ONCE):
            if not self._advance(now_s):
                break
        self._set_alarm()

    def _advance(self, now_s: float) -> bool:
        """Simulate the next instant up to then; False where there is none, or it failed."""
        try:
            return self.emulation.advance(now_s)
        except Exception as error:
            traceback.print_exc()
            self.failure = f"the simulation failed: {error}"
            self.emulation.fail(self.failure)
            return False

    def _set_alarm(self) -> None:
        """Wake when something happens next."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if not self.failure and self.emulation.next_s < float("inf"):
            left_s = self.wall(self.emulation.next_s) - self.now()
            self._alarm = self.loop.call_later(left_s - POLLED_S if left_s > 2 * POLLED_S else 0, self._run)
