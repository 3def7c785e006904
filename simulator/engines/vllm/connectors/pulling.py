"""KV that another engine has computed, in plain Python: the reads of it, and the network that they go over.

Read from vLLM 0.32, `vllm/distributed/kv_transfer/kv_connector/v1/nixl`: `pull_scheduler.py`, `pull_worker.py`.
"""

import math
from dataclasses import dataclass, field

from boundary.names import shortened

KV_PRODUCER, KV_CONSUMER, KV_BOTH = KV_ROLES = ("kv_producer", "kv_consumer", "kv_both")
LEASE_S = 30.0  # vLLM's `kv_lease_duration`: how long blocks are kept for a reader that never shows up


@dataclass(frozen=True, kw_only=True)
class Nic:
    """An engine's way to the others: a read of n blocks takes `transfer_s + n * (post_s + block_s)` seconds.

    `post_s` is what the reader takes to ask for a block, `block_s` what its bytes take. Reads follow each other: an
    engine reads from one other engine at a time, and is read by one. Between two engines the slower `transfer_s` and
    `block_s` count. Raises ValueError for a time that is negative or not finite.
    """

    block_s: float
    transfer_s: float = 0.0
    post_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("block_s", "transfer_s", "post_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(f"{name} is {shortened(repr(value))}; it must be a finite time of 0 s or more")


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
    received: list[int] = field(default_factory=list)  # requests whose KV is here
    sent: list[int] = field(default_factory=list)  # requests whose KV nobody needs here any more


class Network:
    """The engines' ways to each other, with when each read is over, and when its source knows."""

    def __init__(self, nics: list[Nic]) -> None:
        self.nics = nics
        self.sources: dict[int, int] = {}  # by request: the engine that has computed its KV
        self._read_free_s = [0.0] * len(nics)
        self._sent_free_s = [0.0] * len(nics)
        self._received_s: list[dict[int, float]] = [{} for _ in nics]  # by reading engine and request
        self._sent_s: list[dict[int, float]] = [{} for _ in nics]  # by engine that is read

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

    def pull(self, target: int, pull: Pull, now_s: float) -> None:
        """Begin a read."""
        source = self.sources[pull.request]
        one, other = self.nics[source], self.nics[target]
        begin_s = max(now_s, self._sent_free_s[source], self._read_free_s[target])
        transfer_s = max(one.transfer_s, other.transfer_s)
        block_s = other.post_s + max(one.block_s, other.block_s)
        end_s = begin_s + (transfer_s + pull.num_blocks * block_s)
        self._sent_free_s[source] = self._read_free_s[target] = end_s
        self._received_s[target][pull.request] = end_s
        self._release(pull.request, end_s)

    def give_up(self, target: int, request: int, now_s: float) -> None:
        """Tell the source that nobody will read a request's KV."""
        source = self.nics[self.sources[request]]
        self._release(request, now_s + max(source.transfer_s, self.nics[target].transfer_s))

    def tell(self, engine: int, pulls: Pulls, now_s: float) -> None:
        """A step of the engine is launched: with its output comes what is over by now."""
        for known_s, told in ((self._received_s[engine], pulls.received), (self._sent_s[engine], pulls.sent)):
            for request in sorted(request for request, end_s in known_s.items() if end_s <= now_s):
                del known_s[request]
                told.append(request)

    def next_end_s(self, engine: int) -> float:
        """When the next read ends that the engine does not know to be over; infinity: there is none."""
        return min([*self._received_s[engine].values(), *self._sent_s[engine].values()], default=math.inf)
