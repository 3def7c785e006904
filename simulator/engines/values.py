"""How the text of a setting is read: counts, shares, times, paths, names."""

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import msgspec
from msgspec import structs

from files.documents import parse_json
from files.errors import HeadcountError
from files.names import nearest_hint, one_line, shortened

_DURATION = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(ms|s|min|m|h)\s*$", re.ASCII | re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0}
_COUNT = re.compile(r"^\s*([0-9]{0,18}\.?[0-9]{1,18})\s*([kKmMgG]?)\s*$", re.ASCII)
_MULTIPLES = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}  # as vLLM reads them
_SHARE = re.compile(r"^\s*([0-9]{0,18}\.?[0-9]{1,18})\s*(%?)\s*$", re.ASCII)
_WHOLE = re.compile(r"^\s*[0-9]{1,18}\s*$", re.ASCII)
_PERCENT = re.compile(r"^([0-9]{0,18}\.?[0-9]{1,18})\s*%$", re.ASCII)
_LIST = re.compile(r"^[^,\s]+(\s*,\s*[^,\s]+)+$")
MAX_GPUS = 100_000
LARGEST = 2**31 - 1  # of any count: the simulator keeps them in 32 bits
LARGEST_TEXT = 10**18 - 1  # that is read at all
MAX_SECONDS = 3.6e6  # of a limit or a think time: longer than any, short enough for an exact clock
ONE_VALUE = "a run takes one value; 'headcount compare' takes lists"


class Kind(Protocol):
    """What a setting's value is; `name` stands for it in the help."""

    @property
    def name(self) -> str: ...

    def read(self, given: object) -> Any:
        """The value, of text or of a value that was read before. Raises HeadcountError."""


def _refuse_list(given: object) -> None:
    if _LIST.match(str(given)):
        raise HeadcountError(f"'{shortened(str(given))}' is a list; {ONE_VALUE}")


def list_parts(given: str) -> list[str]:
    """What commas separate; a comma before `key=` goes on with the part before."""
    return [part.strip() for part in re.split(r",(?![^,:]*=)", given)]


@dataclass(frozen=True)
class Text:
    """Any text, such as a name.

    `names_code`: it may be module:Name of code that is run; a person gives that, never a file. `takes_parameters`: or
    NAME:key=value, which runs none. `may_be_path`: it is a name that is known, or a file that is read.
    """

    name: str = "TEXT"
    names_code: bool = False
    takes_parameters: bool = False
    may_be_path: bool = False

    def read(self, given: object) -> str:
        return str(given)

    def runs_code(self, given: str) -> bool:
        """Whether the text, or some part of it where it is a list, names code of the user's."""
        parts = list_parts(given) if self.takes_parameters else [given]
        return self.names_code and any(":" in part and not (self.takes_parameters and "=" in part) for part in parts)


ROUTER: Final = Text(names_code=True, takes_parameters=True)


@dataclass(frozen=True)
class Switch:
    """On or off; `has_opposite`: there is a flag for either."""

    name: str = "on/off"
    has_opposite: bool = True

    def read(self, given: object) -> bool:
        return bool(given)


@dataclass(frozen=True)
class Duration:
    """A time with its unit, in seconds."""

    name: str = "TIME"

    def read(self, given: object) -> float:
        if isinstance(given, float):  # read already
            return given
        match = _DURATION.match(str(given))
        if match is None:
            raise HeadcountError(
                f"'{shortened(str(given))}' is not a time; give a number with its unit, such as 500ms, 1.5s or 2min"
            )
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
        if seconds > MAX_SECONDS:
            raise HeadcountError(f"'{shortened(str(given))}' is too long; give at most {MAX_SECONDS / 3600:,.0f}h")
        return seconds


@dataclass(frozen=True)
class DurationOrAuto:
    """The same, or `auto`."""

    name: str = "TIME|auto"

    def read(self, given: object) -> float | str:
        if given == "auto":
            return "auto"
        try:
            return Duration().read(given)
        except HeadcountError as error:
            raise HeadcountError(f"{error}, or auto") from None


@dataclass(frozen=True)
class TokenCount:
    """A whole number, with k = 1000 or K = 1024 as in vLLM; `name` says of what.

    `is_decimal`: K and M are a thousand and a million, as people mean them outside of vLLM's options.
    """

    name: str = "TOKENS"
    most: int = LARGEST
    is_decimal: bool = False

    def read(self, given: object) -> int:
        _refuse_list(given)
        match = _COUNT.match(str(given).lower() if self.is_decimal else str(given))
        count = float(match[1]) * _MULTIPLES[match[2]] if match else 0.0
        if match is None or count < 1 or count != int(count):
            raise HeadcountError(
                f"'{shortened(str(given))}' is not a whole number above 0; give one such as 8192, 8K or 32k"
            )
        if count > self.most:
            raise HeadcountError(f"'{shortened(str(given))}' is too large; give at most {self.most:,}")
        return int(count)


COUNT = TokenCount("N")  # of sequences, blocks, requests


@dataclass(frozen=True)
class WholeNumber:
    """A whole number of at least `minimum`, at most `most`."""

    minimum: int
    most: int = LARGEST
    name: str = "N"

    def read(self, given: object) -> int:
        _refuse_list(given)
        if not _WHOLE.match(str(given)) or not self.minimum <= int(str(given)) <= self.most:
            limits = f"at least {self.minimum}, at most {self.most:,}"
            raise HeadcountError(f"'{shortened(str(given))}' is not a whole number of {limits}")
        return int(str(given))


@dataclass(frozen=True)
class FilePath:
    """A file or folder; an empty name, as an unset shell variable leaves it, is refused."""

    name: str = "PATH"

    def read(self, given: object) -> Path:
        if not str(given).strip() or "\0" in str(given):
            raise HeadcountError(f"'{shortened(str(given))}' names no file; give a path, or leave the option out")
        return Path(str(given))


@dataclass(frozen=True)
class Number:
    """A number; `allowed` says which ones in a message, the range is checked where it is used."""

    allowed: str
    name: str = "NUMBER"

    def read(self, given: object) -> float:
        try:
            number = float(str(given))
        except ValueError:
            number = math.nan
        if math.isnan(number):
            _refuse_list(given)
            raise HeadcountError(f"'{shortened(str(given))}' is not a number; give {self.allowed}")
        return number


@dataclass(frozen=True)
class Gibibytes:
    """GiB above 0; `none` stands for no such memory, and for None; so does 0 where `may_be_zero`."""

    most: float
    may_be_zero: bool = False
    name: str = "GIB"

    def read(self, given: object) -> float | None:
        if given is None or str(given).strip().lower() == "none":
            return None
        size = Number(f"GiB above 0, such as 64, at most {self.most:,.0f}, or none").read(given)
        if size == 0 and self.may_be_zero:
            return None
        self.check(size)
        return size

    def check(self, size: float) -> None:
        """Raise HeadcountError for a size that no server has."""
        if not 0 < size <= self.most:
            raise HeadcountError(f"{size:g} GiB is out of range; give more than 0, at most {self.most:,.0f}, or none")


@dataclass(frozen=True)
class Share:
    """A share above 0, at most all: `25%` or `0.25`."""

    name: str = "SHARE"

    def read(self, given: object) -> float:
        match = _SHARE.match(str(given))
        share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
        share = given if isinstance(given, float) else share  # of a file, or read already
        if not 0 < share <= 1:
            _refuse_list(given)
            raise HeadcountError(
                f"'{shortened(str(given))}' is not a share; give one above 0, at most 100%, such as 25% or 0.25"
            )
        return share


@dataclass(frozen=True)
class Listed:
    """Values of another kind, separated by commas; kept in order, each once."""

    each: Kind

    @property
    def name(self) -> str:
        return f"{self.each.name},…"

    def read(self, given: object) -> tuple[Any, ...]:
        if isinstance(given, tuple):  # read already
            return given
        parts = list_parts(str(given)) if getattr(self.each, "takes_parameters", False) else str(given).split(",")
        if len(parts) > 1 and not all(part.strip() for part in parts):
            raise HeadcountError(f"'{shortened(one_line(str(given)))}' has an empty entry; leave out a comma")
        return tuple(dict.fromkeys(self.each.read(part.strip()) for part in parts))


@dataclass(frozen=True)
class Objects:
    """One JSON object of another kind, or a JSON list of them in which null stands for none; or `none,{…}`."""

    each: Kind

    @property
    def name(self) -> str:
        return self.each.name

    def read(self, given: object) -> tuple[Any, ...]:
        if isinstance(given, tuple):  # read already
            return given
        text = str(given).strip()
        if not text.startswith("[") and text.lower().startswith("none"):  # `none,{…}`, as other lists begin
            text = f"[null{text[4:]}]"
        settings = parse_json(text, "the text")
        listed = settings if isinstance(settings, list) else [settings]
        return tuple(None if one is None else self.each.read(one) for one in listed)


@dataclass(frozen=True)
class Extra:
    """A share on top, which may be more than all: `30%` or `0.3`."""

    name: str = "SHARE"

    def read(self, given: object) -> float:
        match = _SHARE.match(str(given))
        if match is None:
            _refuse_list(given)
            raise HeadcountError(
                f"'{shortened(str(given))}' is not a share; give one of at least 0, such as 30% or 0.3"
            )
        return float(match[1]) / (100 if match[2] else 1)


@dataclass(frozen=True)
class PriceList:
    """US dollars: one number, or one for each name, `h100-sxm=2.5,l40s=0.9`."""

    name: str = "USD|GPU=USD,…"

    def read(self, given: object) -> float | dict[str, float]:
        if isinstance(given, dict | float):
            return given
        parts = [part.strip() for part in str(given).split(",")]
        number = Number("US dollars, such as 2.5, or h100-sxm=2.5,l40s=0.9")
        if len(parts) == 1 and "=" not in parts[0]:
            return number.read(parts[0])
        prices: dict[str, float] = {}
        for part in parts:
            name, _, usd = part.partition("=")
            prices[name.strip()] = number.read(usd)
        return prices


@dataclass(frozen=True)
class GPUCounts:
    """GPUs of each of several pools, `h100-sxm=4,l40s=8`; whether a name is known is for the catalog to say."""

    name: str = "GPU=N,GPU=N"

    def read(self, given: object) -> dict[str, int]:
        if isinstance(given, dict):
            return given
        found: dict[str, int] = {}
        for part in str(given).split(","):
            name, _, count = (piece.strip() for piece in part.partition("="))
            if not name or not _WHOLE.match(count) or not 0 < int(count) <= MAX_GPUS:
                raise HeadcountError(
                    f"'{shortened(part)}' is no GPU with a count from 1 to {MAX_GPUS:,}; give such as h100-sxm=4,l40s=8"
                )
            if name in found:
                raise HeadcountError(f"'{shortened(name)}' is given twice; give each GPU once")
            found[name] = int(count)
        return found


@dataclass(frozen=True)
class IntegerList:
    """Whole numbers above 0, separated by commas; kept in order, each once."""

    what: str = "GPU counts"
    most: int = MAX_GPUS
    name: str = "N,N,…"

    def read(self, given: object) -> tuple[int, ...]:
        if isinstance(given, tuple):
            return given
        parts = [part.strip() for part in str(given).split(",")]
        if not all(_WHOLE.match(part) and 0 < int(part) <= self.most for part in parts):
            raise HeadcountError(
                f"'{shortened(str(given))}' is not a list of {self.what}; give whole numbers from 1 to {self.most:,}, "
                "such as 1,2,4,8"
            )
        return tuple(dict.fromkeys(int(part) for part in parts))


def read_parameters(text: str, kind: type[msgspec.Struct], what: str, usage: str) -> dict[str, object]:
    """Named values for a struct's fields, `cv=2,length=1min,share=10%`; a field in seconds is named without its unit.

    Raises ValueError for a name that is none, with `usage` as an example. Whether a value suits its field is for the
    struct's type to say.
    """
    known = {item.name.removesuffix("_s"): item.name for item in structs.fields(kind)}
    found: dict[str, object] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        key = key.replace("-", "_")
        if not equals or key not in known:
            takes = f"it takes {', '.join(known)}, such as {usage}" if known else "it takes no parameters"
            near = nearest_hint(key, tuple(known)) if known and equals else ""
            hint = near if near.endswith("?") else takes
            raise HeadcountError(f"'{shortened(part)}' is no parameter of {what}; {hint}")
        found[known[key]] = Duration().read(value) if known[key].endswith("_s") else _plain(value)
    return found


def _plain(text: str) -> float | int | str:
    """A number where it is one, with or without %."""
    if percent := _PERCENT.match(text):
        return float(percent[1]) / 100
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() and abs(number) < LARGEST_TEXT else number
