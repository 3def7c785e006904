"""What a router may know of the engines and of the request to route, and how it is kept up."""

import math
from dataclasses import dataclass
from typing import Any, Final

from files.errors import HeadcountError
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.fleet.pool_sizes import ROLES

METRICS: Final = ("sent", "running", "waiting", "kv_usage")
TOKENS: Final = ("outstanding_tokens", "prefill_tokens")
ACTIVE: Final = ("active_tokens", "held_tokens", "shared_tokens")
MATCHES: Final = ("matched_tokens", "matched_at", "known_tokens")
BASIC: Final = ("num_engines", "candidates", "outstanding", *METRICS, "last", "role", "prompt_tokens", "time_s")
"""What a router sees that says nothing of it."""


@dataclass(frozen=True, kw_only=True)
class Upkeep:
    """How the parts of a view are kept up that do not follow each event at once."""

    scrape_every_s: float = 0.0
    """How often engines' metrics are read; 0: they are those of the moment."""
    only_changes: bool = False
    """Metrics are read only when some engine's requests have changed, then at the earliest `scrape_every_s` on."""
    chunk_tokens: int = 16
    """Tokens of a chunk in the router's own index of prefixes, and of what outstanding requests hold.

    The last, incomplete chunk of a prompt is left out.
    """
    most_chunks: float = math.inf
    """Chunks that the index holds, the least recently sent are forgotten first."""
    of_all_engines: bool = False
    """`most_chunks` holds for all engines together; otherwise for each."""
    lifetime_s: float = math.inf
    """How long the index keeps what is not sent again."""


class View:
    """What a router may know of the engines and of the request to route; never how many tokens it will generate."""

    def __init__(self, arrays: Arrays, sees: tuple[str, ...]) -> None:
        self._engines, self._request, self._sees = arrays.engine_views, arrays.request_view, frozenset(sees)

    @property
    def num_engines(self) -> int:
        """How many engines there are."""
        return len(self._engines)

    @property
    def candidates(self) -> list[int]:
        """The engines that take requests; one of them is to be chosen."""
        found: list[int] = self._engines["routable"].nonzero()[0].tolist()
        return found

    @property
    def outstanding(self) -> list[int]:
        """Requests sent to each engine and not finished, counted by the router itself."""
        return self._of_engines("outstanding")

    @property
    def weight(self) -> list[float]:
        """How much each engine serves beside the others, as the fleet says of its pool."""
        return self._of_engines("weight")

    @property
    def sent(self) -> list[int]:
        """Requests sent to each engine since its metrics were last scraped."""
        return self._of_engines("sent")

    @property
    def running(self) -> list[int]:
        """Requests that each engine ran when its metrics were last scraped."""
        return self._of_engines("running")

    @property
    def waiting(self) -> list[int]:
        """Requests that waited at each engine when its metrics were last scraped."""
        return self._of_engines("waiting")

    @property
    def kv_usage(self) -> list[float]:
        """Share of each engine's KV blocks in use when its metrics were last scraped."""
        return self._of_engines("kv_usage")

    @property
    def outstanding_tokens(self) -> list[int]:
        """Prompt tokens of each engine's outstanding requests."""
        return self._of_engines("outstanding_tokens")

    @property
    def active_tokens(self) -> list[int]:
        """Those of the outstanding requests' prompts in whole chunks, what several share counted once."""
        return self._of_engines("active_tokens")

    @property
    def held_tokens(self) -> list[int]:
        """The same, what several share counted for each."""
        return self._of_engines("held_tokens")

    @property
    def shared_tokens(self) -> list[int]:
        """Tokens of the prompt in whole chunks that each engine's outstanding requests hold already."""
        return self._of_engines("shared_tokens")

    @property
    def prefill_tokens(self) -> list[int]:
        """Those of requests without a first token yet, less what the router believes to be cached."""
        return self._of_engines("prefill_tokens")

    @property
    def matched_tokens(self) -> list[int]:
        """Leading tokens of the prompt that the router's own index has for each engine, in whole chunks."""
        return self._of_engines("matched_tokens")

    @property
    def matched_at(self) -> list[int]:
        """When each engine was first sent the last of these: a number that grows with each request."""
        return self._of_engines("matched_at")

    @property
    def known_tokens(self) -> list[int]:
        """Tokens of all prompts that the router's own index has for each engine."""
        return self._of_engines("known_tokens")

    @property
    def cached_tokens(self) -> list[int]:
        """Leading tokens of the prompt that each engine would find in its prefix cache, as its KV events tell."""
        return self._of_engines("cached_tokens")

    @property
    def last(self) -> int | None:
        """The engine where the request's session was served last; None for its first turn."""
        last = int(self._of_request("last"))
        return None if last == NONE else last

    @property
    def session(self) -> int:
        """The request's session, a number; the same for all its turns."""
        return int(self._of_request("session"))

    @property
    def role(self) -> str:
        """Of the engines that the request may go to: serve, prefill or decode."""
        return ROLES[self._of_request("pool_role")]

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the request's prompt."""
        return int(self._of_request("prompt_tokens"))

    @property
    def time_s(self) -> float:
        """Simulated time, in seconds."""
        return float(self._of_request("now_s"))

    def _of_engines(self, name: str) -> list[Any]:
        self._check(name)
        found: list[object] = self._engines[name].tolist()
        return found

    def _of_request(self, name: str) -> Any:
        self._check({"now_s": "time_s", "pool_role": "role"}.get(name, name))
        return self._request[name][0]

    def _check(self, name: str) -> None:
        if name not in self._sees:
            raise HeadcountError(f"it reads view.{name}, which SEES does not list; add it")
