"""How changes of traffic and arrivals are read: `context=x2,system-prompt=4K`, `on-off:on=30s,off=2min`."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import structs

from files.errors import HeadcountError
from files.names import check_names, shortened
from files.schema import typed
from simulator.engines.values import Duration, Listed, Number, Share, TokenCount, WholeNumber, read_parameters
from workloads.arrivals import PROCESSES, Arrivals
from workloads.clients import MOST_RETRIES
from workloads.traffic_changes import CHANGES, FORMS, Amount

_FACTOR = re.compile(r"^x([0-9]{0,9}\.?[0-9]{1,9})$", re.ASCII | re.IGNORECASE)
_SWITCH: Final = {"true": True, "on": True, "false": False, "off": False}
TrafficChanges = str | Mapping[str, str | bool | Amount] | Sequence[tuple[str, Amount]] | None


@dataclass(frozen=True)
class TrafficChange:
    """What to change by how much: `context=x2`, `think-time=30s`, `long-prompts=10%:32K`."""

    name: str = "NAME=AMOUNT"

    def read(self, given: object) -> tuple[str, Amount]:
        if isinstance(given, tuple):  # read already
            return given
        name, value = _parts(given)
        return name, read_amount(name, value)


TRAFFIC_CHANGES = Listed(TrafficChange())


def read_traffic(given: TrafficChanges) -> dict[str, Amount]:
    """Amounts by name, of text, of pairs that were read, or of a mapping such as {"context": "x2"}; None is no change.

    Raises HeadcountError for what is no change, or for a name that is given twice.
    """
    if isinstance(given, Mapping):
        return {
            name: read_amount(name, value) if isinstance(value, str | bool) else value for name, value in given.items()
        }
    pairs = TRAFFIC_CHANGES.read(given or ())
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise HeadcountError(f"{twice} is given twice in one traffic; leave out one of them")
    return found


def read_amount(name: str, given: str | bool) -> Amount:
    """The amount of one of CHANGES: `x2`, a value in its unit, or `true`. Raises HeadcountError for what is none."""
    check_names([name], CHANGES, "change of traffic")
    change, text = CHANGES[name], str(given).strip()
    try:
        if change.form == "switch":
            return Amount(value=float(_is_on(text)), is_switch=True)
        if change.form == "share":
            share, _, tokens = text.partition(":")
            return Amount(value=TokenCount().read(tokens), share=Share().read(share))
        if factor := _FACTOR.match(text):
            return Amount(value=float(factor[1]), is_factor=True)
        if change.unit == "s":
            return Amount(value=Duration().read(text))
        if change.unit == "retries":
            return Amount(value=WholeNumber(0, MOST_RETRIES).read(text))
        return Amount(value=_number(text) if change.unit in ("turns", "chunks") else TokenCount().read(text))
    except ValueError as error:
        form = f"a factor such as x2, or {change.unit}" if change.form == "mean" else FORMS[change.form]
        if change.unit == "retries":
            form = "a number of retries"
        raise HeadcountError(f"{name}: {error}; it takes {form}") from None


def _is_on(text: str) -> bool:
    if text.lower() not in _SWITCH:
        raise HeadcountError(f"'{shortened(text)}' is neither true nor false")
    return _SWITCH[text.lower()]


def _number(text: str) -> float:
    number = Number("a number of at least 1").read(text)
    if not 1 <= number <= 1e6:
        raise HeadcountError(f"'{shortened(text)}' is not a number from 1 to 1,000,000")
    return number


def _parts(given: object) -> tuple[str, str]:
    name, equals, value = str(given).partition("=")
    if not equals or not value.strip():
        raise HeadcountError(f"'{shortened(str(given))}' is no change of traffic; give NAME=AMOUNT, such as context=x2")
    return name.strip().lower().replace("_", "-"), value


@dataclass(frozen=True)
class ArrivalProcess:
    """A process by name, with its parameters: `poisson`, `gamma:cv=2`, `flash-crowd:at=5min,factor=4,length=1min`."""

    name: str = "PROCESS"

    def read(self, given: object) -> Arrivals:
        return read_arrivals(given)


@dataclass(frozen=True)
class StageRates:
    """Requests/s of one stage after the other, such as `5,10,20`; a rate may come again."""

    name: str = "RATE,…"

    def read(self, given: object) -> tuple[float, ...]:
        if isinstance(given, tuple | list):
            return tuple(float(rate) for rate in given)
        rate = Number("requests per second of each stage, such as 5,10,20")
        return tuple(rate.read(part.strip()) for part in str(given).split(","))


def read_arrivals(given: Any) -> Arrivals:
    """One of PROCESSES. Raises HeadcountError for a name or a parameter that is none."""
    if not isinstance(given, str):  # read already
        return given  # type: ignore[no-any-return]
    name, _, rest = given.strip().lower().replace("_", "-").partition(":")
    check_names([name], PROCESSES, "arrival process")
    process = PROCESSES[name]
    found = read_parameters(rest, process, name, usage(name))
    return typed(found, process, f"{name} (written {usage(name)})")  # type: ignore[no-any-return]


def usage(name: str) -> str:
    """How a process is written, with all of its parameters."""
    parts = []
    for item in structs.fields(PROCESSES[name]):
        key = item.name.removesuffix("_s")
        parts.append(f"{key}={'10%' if key == 'share' else '60s' if item.name.endswith('_s') else '2'}")
    return f"{name}:{','.join(parts)}" if parts else name
