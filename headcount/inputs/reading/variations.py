"""Which variations of a question are asked for: axes of values, and every combination of them."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from files.errors import HeadcountError
from files.names import UnknownNameError, check_names, one_line, shortened
from headcount.inputs.reading.traffic import read_amount
from kvcache.gpus.gpu import find_gpu
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import ENGINES, TITLES
from simulator.engines.values import (
    COUNT,
    ROUTER,
    Duration,
    Kind,
    Number,
    Objects,
    Switch,
    Text,
    TokenCount,
    list_parts,
)
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.kv_transfer import KVTransfer, KVTransferConfig
from simulator.engines.vllm.speculation import Speculation, SpeculativeConfig
from workloads.traffic_changes import CHANGES, Amount

Choice = Mapping[str, Any]
"""One value of each axis, by the axis's name."""

_SHORT: Final = {
    "tensor_parallel_size": "TP {}",
    "pipeline_parallel_size": "PP {}",
    "data_parallel_size": "DP {}",
    "quantization": "{} weights",
    "kv_cache_dtype": "KV {}",
    "gpu": "{}",
    "router": "{}",
    "engine": "{}",
    "users": "{:,} users",
    "context": "average context {}",
    "pools": "{}",
    "decider": "decider {}",
    "kv_transfer": "{}",
    "speculation": "{}",
    "kv_transfer_config": "{}",
}
_NONE: Final = {
    "speculation": "no speculative decoding",
    "quantization": "the checkpoint's weights",
    "kv_offloading_size": "no CPU KV-cache offloading",
    "kv_store_size": "no remote KV cache",
    "kv_store_rate": "remote KV cache as fast as the network",
    "kv_transfer_config": "offloading with LRU eviction",
}
_SIZES: Final = {
    "kv_offloading_size": "CPU KV-cache offloading, {:,g} GiB",
    "kv_store_size": "remote KV cache, {:,g} GiB",
    "kv_store_rate": "remote KV cache at {:,g} GB/s",
}
OWN_FORMATS: Final = (None, "none", "auto")  # the checkpoint's
FORMATS: Final = ("quantization", "kv_cache_dtype")  # of what the model computes, and so perhaps its quality
STEP_TIMES: Final = "step_times"
UNCHANGED: Final = "unchanged"
"""The name of a choice that sets nothing: defaults, and what is given for every choice."""
_KINDS: Final[dict[str, Kind]] = {
    "users": TokenCount("N", is_decimal=True),
    "engine": Text(),
    "gpu": Text(),
    "gpus": COUNT,
    "router": ROUTER,
    "ttft": Duration(),
    "tpot": Duration(),
}
_NOT_LISTED: Final = ("environment",)  # which is a list itself


@dataclass(frozen=True)
class Axis:
    """What is varied, and its values in order; the first is the base's."""

    name: str
    values: tuple[Any, ...]


def axes_of(given: Mapping[str, object]) -> list[Axis]:
    """Everything given as a list of more than one value, in the order given. Raises ValueError for an empty list."""
    axes = [Axis(name, values_of(name, value)) for name, value in given.items()]
    return [axis for axis in axes if len(axis.values) > 1]


def values_of(name: str, given: object) -> tuple[Any, ...]:
    """A list's values, each once, or the one value. Raises HeadcountError for an empty list."""
    if name in _NOT_LISTED or isinstance(given, str) or not isinstance(given, Sequence):
        return (given,)
    if not given:
        raise HeadcountError(f"{name} is an empty list; give at least one value, or leave it out")
    described = arguments_of(EngineArgs).get(name)
    each = (described.kind.read(value) if described and isinstance(value, dict) else value for value in given)
    return tuple(dict.fromkeys(each))


def check_axes_of_engines(engine: Mapping[str, object]) -> None:
    """Raise HeadcountError where engines are compared, and a list is given for an argument that one of them lacks."""
    asked = values_of("engine", engine.get("engine"))
    if len(asked) < 2:
        return
    check_names([name for name in asked if name is not None], ENGINES, "engine")
    for name, value in engine.items():
        lacks = [TITLES[each] for each in asked if each and name not in arguments_of(ENGINES[each])]
        if name != "engine" and lacks and len(values_of(name, value)) > 1:
            raise HeadcountError(
                f"{name} is a list, and {lacks[0]} has no such argument; give one value, or one engine"
            )


def first_values(given: Mapping[str, object]) -> dict[str, object]:
    """What is given, the first value of each list: the base."""
    return {name: values_of(name, value)[0] for name, value in given.items()}


def choices(axes: Sequence[Axis], *, most: int, what: str) -> Iterator[Choice]:
    """Every combination, the last axis first. Raises HeadcountError for more than `most`, with how many they are."""
    count = math.prod(len(axis.values) for axis in axes)
    if count > most:
        sizes = " × ".join(f"{len(axis.values):,} of {axis.name}" for axis in axes)
        raise HeadcountError(f"{count:,} {what} ({sizes}) are too many; give at most {most:,}")
    return (
        dict(zip((axis.name for axis in axes), values, strict=True))
        for values in product(*(axis.values for axis in axes))
    )


def varied(given: Mapping[str, object] | Sequence[str]) -> list[Axis]:
    """The axes of a grid, their values read: traffic, users, GPUs, engine arguments, limits, `step_times`.

    By name, or as `--vary` takes them.

    Raises HeadcountError for a name or a value that is none, with what is known.
    """
    named = given if isinstance(given, Mapping) else read_varied(given)
    return [_axis(name, value) for name, value in named.items()]


def read_varied(texts: Iterable[str]) -> dict[str, str]:
    """Of `--vary`, values by name. Raises HeadcountError for a name that is given twice, or any other form."""
    found: dict[str, str] = {}
    for name, values in map(_named, texts):
        if name in found:
            raise HeadcountError(f"{name} is given twice; give all its values at once: {name}={found[name]},{values}")
        found[name] = values
    return found


def _named(text: str) -> tuple[str, str]:
    """`context=x1,x2` in two. Raises HeadcountError for any other form."""
    name, equals, values = text.partition("=")
    if not equals or not values.strip():
        raise HeadcountError(f"'{shortened(text)}' varies nothing; give NAME=VALUE,VALUE, such as context=x1,x2,x4")
    return name.strip(), values


def _axis(given_name: str, given: object) -> Axis:
    name = given_name.lower().lstrip("-")
    name = name.replace("_", "-") if name.replace("_", "-") in CHANGES else name.replace("-", "_")
    arguments = {key: described for kind in ENGINES.values() for key, described in arguments_of(kind).items()}
    engine = {key: described.kind for key, described in arguments.items()}
    name = {flag_of(key, each).replace("-", "_"): key for key, each in arguments.items()}.get(name, name)
    if name not in engine:
        _check_name(name, [*CHANGES, *_KINDS, STEP_TIMES], engine)
    each = _parts(given, engine.get(name)) if isinstance(given, str) else given
    each = each if isinstance(each, Sequence) else [each]
    values = tuple(dict.fromkeys(_value(name, value, engine.get(name)) for value in each))
    if not values:
        raise HeadcountError(f"{name} is an empty list; give at least one value")
    return Axis(name, values)


def _parts(given: str, kind: Kind | None) -> Sequence[object]:
    """The values of a list; those that are JSON objects as JSON has a list of them."""
    if isinstance(kind, SpeculativeConfig | KVTransferConfig):
        return Objects(kind).read(given)
    return list_parts(given)


def _check_name(name: str, main: Collection[str], engine: Collection[str]) -> None:
    """Raise UnknownNameError for a name that cannot be varied, with the nearest or the main names."""
    try:
        check_names([name], [*main, *engine], "variation")
    except UnknownNameError as error:
        if "did you mean" in str(error):
            raise
        known = ", ".join([*main, "any engine option"]).replace("_", "-")
        raise UnknownNameError(f"no variation '{shortened(one_line(name))}'; known: {known}") from None


def _value(name: str, given: object, kind: Kind | None) -> Any:
    if name in CHANGES:
        return read_amount(name, given) if isinstance(given, str | bool) else given
    try:
        return _read(name, given, kind)
    except ValueError as error:
        raise HeadcountError(f"{name.replace('_', '-')}: {error}") from None


def _read(name: str, given: object, kind: Kind | None) -> Any:
    if name == STEP_TIMES:
        factor = Number("a factor, such as 1.2").read(str(given).lower().removeprefix("x"))
        if not 0.01 <= factor <= 100:
            raise HeadcountError(f"x{factor:g} is out of range; give x0.01 to x100")
        return factor
    if isinstance(kind, Switch) and isinstance(given, str):
        check_names([given], ("on", "off"), "value")
        return given == "on"
    if name == "gpu":
        return find_gpu(str(given)).name
    known = _KINDS.get(name, kind)
    return known.read(given.strip()) if known is not None and isinstance(given, str) else given


def value_text(name: str, value: Any) -> str:
    """Such as `TP 2`, `KV fp8` or `max_num_seqs 128`."""
    if name == STEP_TIMES:
        return f"step times x{value:g}"
    if name == "quantization" and value == "none":
        value = None
    if name in _NONE and value is None:
        return _NONE[name]
    if name in _SIZES:
        return _SIZES[name].format(value)
    if name in ("ttft", "tpot"):
        return f"{name.upper()} ≤ {value:g} s" if value >= 1 else f"{name.upper()} ≤ {1000 * value:g} ms"
    if name == "gpus":
        return f"{value:,} GPU" + ("" if value == 1 else "s")
    if isinstance(value, Amount) and not value.is_factor and value.form == "mean":
        value = f"{value.value:,.15g}"
    elif isinstance(value, Speculation | KVTransfer):
        value = value.label
    elif isinstance(value, bool):
        value = "on" if value else "off"
    elif isinstance(value, int) and name not in _SHORT:
        value = f"{value:,}"
    elif not isinstance(value, int | str):
        value = "default" if value is None else shortened(getattr(value, "__name__", str(value)), 40)
    return _SHORT.get(name, f"{name} {{}}").format(value)


def choice_text(choice: Choice) -> str:
    """All of a choice in a line."""
    return ", ".join(value_text(name, value) for name, value in choice.items()) or UNCHANGED
