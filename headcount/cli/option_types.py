"""How the command line reads durations, counts, numbers, lists, paths."""

import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from registry.names import shortened

_DURATION = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(ms|s|min|h)\s*$", re.ASCII | re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_COUNT = re.compile(r"^\s*([0-9]{0,18}\.?[0-9]{1,18})\s*([kKmMgG]?)\s*$", re.ASCII)
_MULTIPLES = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}  # as vLLM reads them
_WHOLE = re.compile(r"^\s*[0-9]{1,18}\s*$", re.ASCII)
MAX_GPUS = 100_000
MAX_SECONDS = 3.6e6  # of a limit or a think time: longer than any, short enough for an exact clock


class Duration(click.ParamType[float]):
    """A time with its unit, in seconds."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):  # from --config, read already
            return value
        match = _DURATION.match(str(value))
        if match is None:
            given = shortened(str(value))
            self.fail(f"'{given}' is not a time; give a number with its unit, such as 500ms, 1.5s or 2min", param, ctx)
        seconds = float(match[1]) * _SECONDS[match[2].lower()]
        if seconds > MAX_SECONDS:
            self.fail(f"'{shortened(str(value))}' is too long; give at most {MAX_SECONDS / 3600:,.0f}h", param, ctx)
        return seconds


@dataclass(frozen=True)
class TokenCount(click.ParamType[int]):
    """A whole number, with k = 1000 or K = 1024 as in vLLM; `name` says of what in the help."""

    name: str = "TOKENS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        match = _COUNT.match(str(value))
        count = float(match[1]) * _MULTIPLES[match[2]] if match else 0.0
        if match is None or count < 1 or count != int(count):
            given = shortened(str(value))
            self.fail(f"'{given}' is not a whole number above 0; give one such as 8192, 8K or 32k", param, ctx)
        return int(count)


COUNT = TokenCount("N")  # of sequences, blocks, requests


@dataclass(frozen=True)
class WholeNumber(click.ParamType[int]):
    """A whole number of at least `minimum`, at most `most` where that is given."""

    minimum: int
    most: int | None = None
    name = "N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        limit = "" if self.most is None else f", at most {self.most:,}"
        if not _WHOLE.match(str(value)) or not self.minimum <= int(str(value)) <= (self.most or int(str(value))):
            self.fail(f"'{shortened(str(value))}' is not a whole number of at least {self.minimum}{limit}", param, ctx)
        return int(str(value))


class FilePath(click.ParamType[Path]):
    """A file or folder; an empty name, as an unset shell variable leaves it, is refused."""

    name = "PATH"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        if not str(value) or "\0" in str(value):
            self.fail(f"'{shortened(str(value))}' names no file; give a path, or leave the option out", param, ctx)
        return Path(str(value))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


class SpeculativeConfig(click.ParamType[Any]):
    """vLLM's JSON object, with the share of drafts that are accepted."""

    name = "JSON"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from simulator.engines.vllm.engine import Speculation  # noqa: PLC0415  imported where it is given
        from simulator.engines.vllm.speculation import ACCEPTED_KEYS, METHOD_NAMES  # noqa: PLC0415

        if isinstance(value, Speculation):
            return value
        given = shortened(str(value))
        try:
            settings = value if isinstance(value, dict) else json.loads(str(value))
        except ValueError:
            settings = None
        needed = ("method", "num_speculative_tokens", "acceptance_rate")
        if not isinstance(settings, dict) or any(name not in settings for name in needed):
            self.fail(f"'{given}' is not a JSON object with {', '.join(needed)}", param, ctx)
        unknown = [str(name) for name in settings if name not in ACCEPTED_KEYS]
        if unknown:
            self.fail(
                f"{', '.join(unknown)}: not modelled here; there are {', '.join(sorted(ACCEPTED_KEYS))}", param, ctx
            )
        method, count, rate = (settings[name] for name in needed)
        if not isinstance(method, str) or method not in METHOD_NAMES:
            self.fail(
                f"method '{shortened(str(method))}' is not modelled; there are {', '.join(METHOD_NAMES)}", param, ctx
            )
        if type(count) is not int or isinstance(rate, bool) or not isinstance(rate, int | float):
            self.fail(f"num_speculative_tokens is a whole number, acceptance_rate a share; given '{given}'", param, ctx)
        return Speculation(method=METHOD_NAMES[method], num_speculative_tokens=count, acceptance_rate=float(rate))


@dataclass(frozen=True)
class Number(click.ParamType[float]):
    """A number in words: `allowed` is for the message, what depends on the rest of the load is checked there."""

    allowed: str
    name = "NUMBER"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if math.isnan(number):
            self.fail(f"'{shortened(str(value))}' is not a number; give {self.allowed}", param, ctx)
        return number


@dataclass(frozen=True)
class IntegerList(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0, separated by commas; kept in order, each once."""

    what: str = "GPU counts"
    most: int = MAX_GPUS
    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(_WHOLE.match(part) and 0 < int(part) <= self.most for part in parts):
            self.fail(
                f"'{shortened(str(value))}' is not a list of {self.what}; give whole numbers from 1 to {self.most:,}, "
                "such as 1,2,4,8",
                param,
                ctx,
            )
        return tuple(dict.fromkeys(int(part) for part in parts))
