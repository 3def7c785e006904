"""KV that another engine has computed, in plain Python: the reads of it, and the network that they go over.

Read from vLLM 0.32, `vllm/distributed/kv_transfer/kv_connector/v1/nixl`: `pull_scheduler.py`, `pull_worker.py`.
"""

import math
from dataclasses import dataclass, field

from files.errors import HeadcountError
from files.names import shortened

KV_PRODUCER, KV_CONSUMER, KV_BOTH = KV_ROLES = ("kv_producer", "kv_consumer", "kv_both")
LEASE_S = 30.0  # vLLM's `kv_lease_duration`: how long blocks are kept for a reader that never shows up


@dataclass(frozen=True, kw_only=True)
class Nic:
    """An engine's way to the others: a read of n blocks takes `transfer_s + n * (post_s + block_s)` seconds.

    `post_s` is what the reader takes to ask for a block, `block_s` what its bytes take. Reads follow each other: an
    engine reads from one other engine at a time, and is read by one. Between two engines the slower `transfer_s` and
    `block_s` count. Raises HeadcountError for a time that is negative or not finite.
    """

    block_s: float
    transfer_s: float = 0.0
    post_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("block_s", "transfer_s", "post_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise HeadcountError(f"{name} is {shortened(repr(value))}; it must be a finite time of 0 s or more")


@dataclass(frozen=True, kw_only=True)
class Pull:
    """A read of so many blocks of a request's prompt."""

    request: int
    num_blocks: int


@dataclass(kw_only=True)
class Pulls:
    """What one `schedule()` call asks of the network, and what it hears of with its output."""

    asked: list[Pull] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)  # requests that ended before their KV was read
    offered: list[int] = field(default_factory=list)  # requests whose KV is complete here since the step before
    received: list[int] = field(default_factory=list)  # requests whose KV is here
    sent: list[int] = field(default_factory=list)  # requests whose KV nobody needs here any more


class Wires:
    """The engines' ways to each other: one transfer at a time from an engine and to an engine."""

    def __init__(self, nics: list[Nic]) -> None:
        self.nics = nics
        self._read_free_s = [0.0] * len(nics)
        self._sent_free_s = [0.0] * len(nics)

    def message_s(self, one: int, other: int) -> float:
        """How long a message is under way."""
        return max(self.nics[one].transfer_s, self.nics[other].transfer_s)

    def carry(self, source: int, target: int, num_blocks: int, *, post_s: float, now_s: float) -> float:
        """Begin a transfer, then or once both engines' ways are free; when it ends."""
        begin_s = max(now_s, self._sent_free_s[source], self._read_free_s[target])
        block_s = post_s + max(self.nics[source].block_s, self.nics[target].block_s)
        end_s = begin_s + (self.message_s(source, target) + num_blocks * block_s)
        self._sent_free_s[source] = self._read_free_s[target] = end_s
        return end_s


class Network:
    """When each read is over, and when its source knows."""

    def __init__(self, nics: list[Nic]) -> None:
        self.nics, self._wires = nics, Wires(nics)
        self.sources: dict[int, int] = {}  # by request: the engine that has computed its KV
        self._received_s: list[dict[int, float]] = [{} for _ in nics]  # by reading engine and request
        self._sent_s: list[dict[int, float]] = [{} for _ in nics]  # by engine that is read

    def num_lost(self, _: int) -> int:
        """Requests whose KV an engine waits for, and which never comes."""
        return 0

    def hold(self, engine: int, request: int, until_s: float) -> None:
        """An engine keeps a request's KV, for that long if nobody comes to read it."""
        self.sources[request] = engine
        self._sent_s[engine][request] = until_s

    def expect(self, request: int) -> None:
        """A reader knows of the request: from now on it renews the lease."""
        self._release(request, math.inf)

    def _release(self, request: int, time_s: float) -> None:
        """The engine that keeps a request's KV, if it still does, will know by then that nobody needs it any more."""
        kept = self._sent_s[self.sources[request]]
        if request in kept:
            kept[request] = time_s

    def launch(self, engine: int, pulls: Pulls, now_s: float) -> None:
        """A step of the engine is launched: its reads begin, and it hears which are over by now."""
        for pull in pulls.asked:
            self.pull(engine, pull, now_s)
        for request in pulls.given_up:
            self.give_up(engine, request, now_s)
        self.tell(engine, pulls, now_s)

    def pull(self, target: int, pull: Pull, now_s: float) -> None:
        """Begin a read."""
        source, post_s = self.sources[pull.request], self.nics[target].post_s
        end_s = self._wires.carry(source, target, pull.num_blocks, post_s=post_s, now_s=now_s)
        self._received_s[target][pull.request] = end_s
        self._release(pull.request, end_s)

    def give_up(self, target: int, request: int, now_s: float) -> None:
        """Tell the source that nobody will read a request's KV."""
        self._release(request, now_s + self._wires.message_s(self.sources[request], target))

    def tell(self, engine: int, pulls: Pulls, now_s: float) -> None:
        """A step of the engine is launched: with its output comes what is over by now."""
        for known_s, told in ((self._received_s[engine], pulls.received), (self._sent_s[engine], pulls.sent)):
            for request in sorted(request for request, end_s in known_s.items() if end_s <= now_s):
                del known_s[request]
                told.append(request)

    def next_end_s(self, engine: int) -> float:
        """When the next read ends that the engine does not know to be over; infinity: there is none."""
        return min([*self._received_s[engine].values(), *self._sent_s[engine].values()], default=math.inf)
