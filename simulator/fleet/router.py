"""What a router sees, and how it is found by name.

A built-in router is a file in `routers/`: `SEES`, what it reads of its view; `choose`, the form that the core compiles;
`Router`, the readable twin. One outside, as `module:Name` or in a folder of HEADCOUNT_PATH, may have the twin alone:
the core then comes back at every arrival.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from boundary.names import error_shown, value_shown
from boundary.registry import Registry
from boundary.schema import typed
from simulator.core.layout import NONE, Arrays
from simulator.engines.vllm.speculation import draft_hash

ROUTERS = Registry(
    what="router",
    section="routers",
    folder=Path(__file__).parent / "routers",
    package="simulator.fleet.routers",
    needs=("SEES", "Router"),
)


class View:
    """What a router may know of the engines and of the request to route; never how many tokens it will generate."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._cursor = arrays.cursor[0]

    @property
    def num_engines(self) -> int:
        """How many engines there are."""
        return len(self._arrays.outstanding)

    @property
    def outstanding(self) -> list[int]:
        """Requests sent to each engine and not finished, counted by the router itself."""
        found: list[int] = self._arrays.outstanding.tolist()
        return found

    @property
    def running(self) -> list[int]:
        """Requests that each engine runs."""
        found: list[int] = self._arrays.replicas["num_running"].tolist()
        return found

    @property
    def waiting(self) -> list[int]:
        """Requests that wait at each engine."""
        found: list[int] = self._arrays.replicas["num_waiting"].tolist()
        return found

    @property
    def last(self) -> int | None:
        """The engine where the request's session was served last; None for its first turn."""
        last = int(self._request["replica"])
        return None if last == NONE else last

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the request's prompt."""
        return int(self._request["prompt"])

    @property
    def time_s(self) -> float:
        """Simulated time, in seconds."""
        return float(self._cursor["now_s"])

    @property
    def _request(self) -> Any:
        return self._arrays.requests[int(self._cursor["unrouted"])]


class Router(Protocol):
    """Gives each request an engine."""

    def choose(self, view: View) -> int:
        """The engine, counted from 0."""


RouterFactory = Callable[[int], Router]
"""Makes a router from the seed of its random stream: usually its class."""


@dataclass(frozen=True, kw_only=True)
class FoundRouter:
    """A router by name, with its compiled form where it has one."""

    make: RouterFactory
    sees: tuple[str, ...] = ()
    choose: Callable[..., int] | None = None


def find_router(router: str | RouterFactory) -> FoundRouter:
    """Raises UnknownNameError with the nearest names."""
    if not isinstance(router, str):
        return FoundRouter(make=router)
    if ":" in router:
        return FoundRouter(make=_router_class(router, ROUTERS.load(router)))
    files = {name.replace("_", "-"): name for name in ROUTERS.names()}
    if router not in files:
        raise ROUTERS.unknown(router, tuple(files))
    module = ROUTERS.load(files[router])
    visible = tuple(name for name in vars(View) if not name.startswith("_"))
    sees = typed(module.SEES, tuple[Literal[visible], ...], module.__file__, "SEES")  # type: ignore[valid-type]
    return FoundRouter(make=_router_class(router, module.Router), sees=sees, choose=getattr(module, "choose", None))


def _router_class(name: str, found: object) -> RouterFactory:
    """Raises ValueError unless it is one: what is none is not called."""
    if not isinstance(found, type) or not callable(getattr(found, "choose", None)):
        raise ValueError(f"router {name!r}: {value_shown(found)} is no class with choose(view); give one")
    return found


def check_router(router: str | RouterFactory) -> None:
    """Raise ValueError unless the name, or what makes a router, does."""
    name, found = router_name(router), find_router(router)
    try:
        made = found.make(0)
    except TypeError as error:
        raise ValueError(
            f"router {name!r} cannot be made from a seed, as Router(0): {error_shown(error)}; "
            "give its __init__ one parameter, the seed"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"router {name!r}: making it fails with {error_shown(error)}; correct it") from error
    if not callable(getattr(made, "choose", None)):
        raise ValueError(f"router {name!r} makes a {type(made).__name__}, which has no choose(view)")


def is_shipped(name: str) -> bool:
    """Whether the router of that name is Headcount's own, and no file or module of the user's."""
    path = ROUTERS.files().get(name.replace("-", "_"))
    return path is not None and path.parent == ROUTERS.folder


def router_name(router: str | RouterFactory) -> str:
    return router if isinstance(router, str) else getattr(router, "__name__", str(router))


def router_names() -> tuple[str, ...]:
    return tuple(name.replace("_", "-") for name in ROUTERS.names())


class Draws:
    """A random stream; the compiled twin is `simulator.core.draws.draw`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """The next number, evenly spread over [0, limit)."""
        self._count += 1
        return draft_hash(self._seed, self._count) * limit >> 32
