"""How a router is found by name, with its parameters.

A built-in router is a file in `routers/`: `SEES`, what it reads of its view; `PARAMETERS` by the names of the original,
if it has any, and `upkeep`, what they mean for the view; `choose`, the form that the core compiles; `Router`, the
reference implementation. One outside, as `module:Name` or in a folder of HEADCOUNT_PATH, may have the reference
alone: the core then comes back at every arrival.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar

from files.errors import HeadcountError
from files.names import UnknownNameError, error_shown, nearest_hint, readable, value_shown
from files.registry import Registry
from files.schema import typed
from simulator.core.layout import ROUTER_WORDS
from simulator.engines.vllm.speculation import draft_hash
from simulator.fleet.view import BASIC, Upkeep, View

T = TypeVar("T")

ROUTERS = Registry(
    what="router",
    section="routers",
    folder=Path(__file__).parent / "routers",
    package="simulator.fleet.routers",
    needs=("SEES", "Router"),
)


OF_BLOCKS: Final = "kv_cache_block_size"
"""The parameter that says how many tokens the engines' blocks have."""

ALSO_CALLED: Final = {
    "roundrobin": "round-robin",  # production-stack
    "least-load": "least-outstanding",  # SGLang gateway
    "total-requests": "least-outstanding",  # SGLang's --load-balance-method
    "ray-pow-2": "power-of-two",  # Ray Serve's default, with the queues that one proxy has sent
}
"""Names that people know of policies that are one here."""


class Router(Protocol):
    """Gives each request an engine."""

    def choose(self, view: View) -> int:
        """The engine, counted from 0, one of `view.candidates`."""


RouterFactory = Callable[[int], Router]
"""Makes a router from the seed of its random stream: usually its class."""


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """A number that decides how a router chooses; `least` and `most` are allowed. Of `choices` it is the place.

    `is_whole`: it counts something, so that a fraction is refused.
    """

    default: float
    what: str
    least: float = 0.0
    most: float = 1e9
    is_whole: bool = False
    choices: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        if self.choices:
            return f"one of {', '.join(self.choices)}"
        limits = (
            f"at least {readable(self.least)}"
            if self.most >= 1e9
            else f"{readable(self.least)} to {readable(self.most)}"
        )
        return f"a whole number, {limits}" if self.is_whole else limits


@dataclass(frozen=True, kw_only=True)
class FoundRouter:
    """A router by name, with its compiled form where it has one."""

    make: RouterFactory
    sees: tuple[str, ...] = BASIC
    choose: Callable[..., int] | None = None
    parameters: Mapping[str, float] = field(default_factory=dict)
    upkeep: Upkeep = field(default_factory=Upkeep)
    memory_words: Callable[[int], int] = lambda num_engines: ROUTER_WORDS + num_engines
    """Of its compiled form, by the number of engines."""


def find_router(router: str | RouterFactory, block_size: int | None = None) -> FoundRouter:
    """A name may go on with parameters, as `NAME:key=value,key=value`.

    A router that counts in the engines' blocks takes them to be of `block_size` tokens, unless its parameter says so.
    Raises UnknownNameError with the nearest names, ValueError for a parameter that is none.
    """
    if not isinstance(router, str):
        return _of_class(router)
    name, _, given = router.partition(":")
    name = ALSO_CALLED.get(name, name)
    if given and "=" not in given:
        return _of_class(_router_class(router, ROUTERS.load(router)))
    files = {name.replace("_", "-"): name for name in ROUTERS.names()}
    if name not in files:
        raise ROUTERS.unknown(name, tuple(files))
    module = ROUTERS.load(files[name])
    visible = tuple(name for name in vars(View) if not name.startswith("_"))
    sees = typed(module.SEES, tuple[Literal[visible], ...], module.__file__, "SEES")  # type: ignore[valid-type]
    known: Mapping[str, Parameter] = getattr(module, "PARAMETERS", {})
    values = parameter_values(f"router {name!r}", given, known)
    if block_size is not None and OF_BLOCKS in known and f"{OF_BLOCKS}=" not in given.replace(" ", ""):
        values[OF_BLOCKS] = float(block_size)
    made = _router_class(router, module.Router)
    return FoundRouter(
        make=partial(made, **values) if known else made,
        sees=sees,
        choose=getattr(module, "choose", None),
        parameters=values,
        upkeep=module.upkeep(values) if hasattr(module, "upkeep") else Upkeep(),
        **({"memory_words": partial(module.memory_words, values=values)} if hasattr(module, "memory_words") else {}),
    )


def _of_class(make: RouterFactory) -> FoundRouter:
    """A class may say what it sees, and how that is kept up, in SEES and UPKEEP of its own."""
    return FoundRouter(make=make, sees=getattr(make, "SEES", BASIC), upkeep=getattr(make, "UPKEEP", Upkeep()))


def parameter_values(of: str, given: str, known: Mapping[str, Parameter]) -> dict[str, float]:
    """Every parameter's value, in the order of `known`. Raises HeadcountError for what is no parameter or no value."""
    values = {key: float(parameter.default) for key, parameter in known.items()}
    seen = set()
    for part in filter(None, given.split(",")):
        key, _, text = (side.strip() for side in part.partition("="))
        if key not in known:
            there_is = nearest_hint(key, known) if known else "it takes none"
            raise UnknownNameError(f"{of} has no parameter {value_shown(key)}; {there_is}")
        if key in seen:
            raise HeadcountError(f"{of}: {key} is given twice; give it once")
        seen.add(key)
        values[key] = _number(of, key, text, known[key])
    return values


def _number(of: str, key: str, text: str, parameter: Parameter) -> float:
    if text in parameter.choices:
        return float(parameter.choices.index(text))
    try:
        value = float("nan" if parameter.choices else text)
    except ValueError:
        value = float("nan")
    if not parameter.least <= value <= parameter.most or (parameter.is_whole and not value.is_integer()):
        number = "" if parameter.choices or parameter.is_whole else "a number, "
        raise HeadcountError(f"{of}: {key} is {value_shown(text)}; give {number}{parameter.allowed}")
    return value


def _router_class(name: str, found: object) -> Callable[..., Router]:
    """Raises HeadcountError unless it is one: what is none is not called."""
    if not isinstance(found, type) or not callable(getattr(found, "choose", None)):
        raise HeadcountError(f"router {name!r}: {value_shown(found)} is no class with choose(view); give one")
    return found


def check_router(router: str | RouterFactory) -> None:
    """Raise HeadcountError unless the name, or what makes a router, does."""
    name, found = router_name(router), find_router(router)
    try:
        made = found.make(0)
    except TypeError as error:
        raise HeadcountError(
            f"router {name!r} cannot be made from a seed, as Router(0): {error_shown(error)}; "
            "give its __init__ one parameter, the seed"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HeadcountError(f"router {name!r}: making it fails with {error_shown(error)}; correct it") from error
    if not callable(getattr(made, "choose", None)):
        raise HeadcountError(f"router {name!r} makes a {type(made).__name__}, which has no choose(view)")


def is_shipped(router: str) -> bool:
    """Whether the router of that name is Headcount's own, and no file or module of the user's."""
    name, _, given = router.partition(":")
    path = ROUTERS.files().get(ALSO_CALLED.get(name, name).replace("-", "_"))
    return path is not None and path.parent == ROUTERS.folder and (not given or "=" in given)


def router_name(router: str | RouterFactory) -> str:
    return router if isinstance(router, str) else getattr(router, "__name__", str(router))


def router_names() -> tuple[str, ...]:
    return tuple(name.replace("_", "-") for name in ROUTERS.names())


class Draws:
    """A random stream; compiled, it is `simulator.core.draws.draw`."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """The next number, evenly spread over [0, limit)."""
        self._count += 1
        return draft_hash(self._seed, self._count) * limit >> 32

    def highest(self, scores: Mapping[int, Any]) -> int:
        """The key of the highest score; keys that tie, in their order, have an even chance."""
        best, num_tied = -1, 0
        for key, score in scores.items():
            if best < 0 or score > scores[best]:
                best, num_tied = key, 1
            elif score == scores[best]:
                num_tied += 1
                best = key if self.below(num_tied) == 0 else best
        return best

    def power_of_two(self, choices: Sequence[int], loads: Sequence[int]) -> int:
        """Of two at random the one with the lower load, the one drawn first where they tie."""
        if len(choices) == 1:
            return choices[0]
        first = self.below(len(choices))
        others = [*choices[:first], *choices[first + 1 :]]
        return min(choices[first], self.of(others), key=lambda engine: loads[engine])

    def of(self, choices: Sequence[T]) -> T:
        """One of them, all alike."""
        return choices[self.below(len(choices))]
