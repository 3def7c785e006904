"""What an autoscaler sees, and how it is found by name.

An autoscaler is a file in `scalers/`: `Settings`, its parameters under the original's names with the original's
defaults; `Scaler`, which says how many replicas it wants. One of the user's is a file in the folder `scalers` of a
folder of HEADCOUNT_PATH, or `module:Name`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from msgspec import structs

from files.errors import HeadcountError
from files.names import error_shown, value_shown
from files.registry import Registry
from files.schema import typed
from simulator.engines.values import read_parameters

SCALERS = Registry(
    what="autoscaler",
    section="scalers",
    folder=Path(__file__).parent / "scalers",
    package="simulator.fleet.scalers",
    needs=("Scaler", "Settings"),
)


IN_FLIGHT: Final = ("in_flight", "running")  # metrics that grow with the load from its first request on
REQUESTS_PER_S: Final = "requests_per_s"  # per replica, averaged since the autoscaler looked before


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What is known of a fleet when an autoscaler looks at it; tuples have one value for each ready replica."""

    time_s: float
    elapsed_s: float
    """Since it looked before."""
    replicas: int
    """As wanted last: those that start and those that are ready."""
    min_replicas: int
    max_replicas: int
    ready: tuple[int, ...]
    """The numbers of the ready replicas."""
    running: tuple[int, ...]
    """Requests that each runs."""
    waiting: tuple[int, ...]
    """Requests that wait in each."""
    kv_usage: tuple[float, ...]
    """Share of its KV blocks that requests hold."""
    queued_kv: tuple[float, ...]
    """KV blocks that the prompts waiting in it will take, over all that it has."""
    held: int = 0
    """Requests that wait at the gateway: in its queue, or because no replica is ready."""
    in_flight_mean: float = 0.0
    """Requests sent and not answered in the whole fleet, averaged over `elapsed_s`."""
    arrived: int = 0
    """Requests that came to the gateway in `elapsed_s`."""

    @property
    def in_flight(self) -> tuple[int, ...]:
        """Requests that each runs or keeps waiting."""
        return tuple(map(sum, zip(self.running, self.waiting, strict=True)))

    def values(self, metric: str) -> tuple[float, ...]:
        """One of METRICS, or REQUESTS_PER_S, by ready replica."""
        if metric == REQUESTS_PER_S:
            each = self.arrived / self.elapsed_s / len(self.ready) if self.ready and self.elapsed_s else 0.0
            return (each,) * len(self.ready)
        found: tuple[float, ...] = getattr(self, metric)
        return found

    def bounded(self, desired_replicas: int) -> int:
        """Within the fleet's limits."""
        return min(max(desired_replicas, self.min_replicas), self.max_replicas)


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What an autoscaler's settings aim at; `Settings.goal` of each file in `scalers/`."""

    text: str
    """Such as `16 requests in flight per replica (target_average_value)`."""
    for_more: str
    """The change that gives more replicas at the same load, such as `a lower target_average_value`."""
    for_fewer: str
    target: "Target | None" = None
    """None where it aims at no value per replica."""

    @property
    def in_flight(self) -> float | None:
        """Requests per replica that it aims at; None where it looks at something else."""
        return self.target.value if self.target is not None and self.target.metric in IN_FLIGHT else None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A value of a metric per replica, and the parameter in proportion to it."""

    metric: str
    """Of `Observed`, or REQUESTS_PER_S."""
    value: float
    setting: str


def goal_of_target(words: str, value: float, setting: str, metric: str) -> Goal:
    """Of a setting that is a value per replica: a lower one gives more replicas."""
    return Goal(
        target=Target(metric=metric, value=value, setting=setting),
        text=f"{value:g} {words} per replica ({setting})",
        for_more=f"a lower {setting}",
        for_fewer=f"a higher {setting}",
    )


class Scaler(Protocol):
    """Says every `period_s` seconds how many replicas there should be; the fleet's limits are kept for it."""

    @property
    def period_s(self) -> float: ...

    def desired_replicas(self, seen: Observed) -> int:
        """How many replicas; `seen.replicas` leaves the fleet as it is."""


ScalerFactory = Callable[[], Scaler]


def find_scaler(given: str | ScalerFactory) -> ScalerFactory:
    """Makes the autoscaler anew for each run: `hpa`, or with parameters `hpa:target_average_value=30,tolerance=0.2`.

    Raises HeadcountError for a name or a parameter that is none, with the nearest names.
    """
    if not isinstance(given, str):
        return given
    name, made, settings = _found(given)
    return lambda: _made(name, made, settings)


def goal_of(given: str | ScalerFactory) -> Goal | None:
    """What a shipped autoscaler aims at with its parameters; None where one of the user's does not say."""
    settings = _found(given)[2] if isinstance(given, str) else ()
    found = getattr(settings[0], "goal", None) if settings else None
    return found if isinstance(found, Goal) else None


def with_target(given: str, target: Target, value: float) -> str:
    """The same autoscaler aiming at another value of the metric of its target."""
    name, parameters = _parts(given)
    setting = target.setting
    kept = [part for part in filter(None, parameters.split(",")) if part.partition("=")[0].strip() != setting]
    set_to = getattr(_found(given)[2][0], setting) * value / target.value
    changed = f"{setting}={float(format(set_to, '.2g')):g}"
    return f"{name}:{','.join([*kept, changed])}"


def _found(given: str) -> tuple[str, type[Any], tuple[Any, ...]]:
    """Name, class and settings, of which there may be none. Raises HeadcountError."""
    name, parameters = _parts(given)
    if ":" in name:
        made: object = SCALERS.load(name)
        settings_kind = getattr(made, "Settings", None)
    else:
        files = {file.replace("_", "-"): file for file in SCALERS.names()}
        if name not in files:
            raise SCALERS.unknown(name, tuple(files))
        module = SCALERS.load(files[name])
        made, settings_kind = module.Scaler, module.Settings
    if not isinstance(made, type) or not callable(getattr(made, "desired_replicas", None)):
        raise HeadcountError(
            f"autoscaler {name!r}: {value_shown(made)} is no class with desired_replicas(seen); give one"
        )
    if settings_kind is None and parameters:
        raise HeadcountError(f"autoscaler {name!r} takes no parameters: it has no Settings")
    return name, made, () if settings_kind is None else (_settings(name, parameters, settings_kind),)


def _parts(given: str) -> tuple[str, str]:
    """The name and its parameters; of `module:Name` the colon belongs to the name."""
    name, _, rest = given.strip().partition(":")
    if rest and "=" not in rest.partition(":")[0]:
        attribute, _, rest = rest.partition(":")
        return f"{name}:{attribute}", rest
    return name.lower().replace("_", "-"), rest


def _settings(name: str, parameters: str, kind: type[Any]) -> Any:
    if hasattr(kind, "read"):  # what is no list of named parameters
        return kind.read(parameters)
    first = structs.fields(kind)[0].name.removesuffix("_s") if structs.fields(kind) else "NAME"
    found = read_parameters(parameters, kind, f"the autoscaler {name}", f"{name}:{first}=VALUE")
    return typed(found, kind, f"autoscaler {name}")


def _made(name: str, kind: type[Any], settings: tuple[Any, ...]) -> Scaler:
    try:
        made: Scaler = kind(*settings)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise HeadcountError(f"autoscaler {name!r}: making it fails with {error_shown(error)}; correct it") from error
    if not getattr(made, "period_s", 0) > 0:
        raise HeadcountError(f"autoscaler {name!r} has no period_s above 0; say how often it looks")
    return made


def scaler_name(given: str | ScalerFactory) -> str:
    return given if isinstance(given, str) else getattr(given, "__name__", str(given))
