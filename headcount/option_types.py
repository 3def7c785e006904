"""How the command line reads durations, token counts, lists."""

import re

import click

_DURATION = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:e-?[0-9]+)?)\s*(ms|s|min|h)\s*$", re.IGNORECASE)
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_COUNT = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*([kKmMgG]?)\s*$")
_MULTIPLES = {"": 1, "k": 1000, "K": 1024, "m": 10**6, "M": 2**20, "g": 10**9, "G": 2**30}  # as vLLM reads them


class Duration(click.ParamType[float]):
    """A time with its unit, in seconds."""

    name = "TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _DURATION.match(str(value))
        if match is None:
            self.fail(f"'{value}' is not a time; give a number with its unit, such as 500ms, 1.5s or 2min", param, ctx)
        return float(match[1]) * _SECONDS[match[2].lower()]


class TokenCount(click.ParamType[int]):
    """A whole number, with k = 1000 or K = 1024 as in vLLM."""

    name = "TOKENS"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _COUNT.match(str(value))
        count = float(match[1]) * _MULTIPLES[match[2]] if match else 0.0
        if match is None or count < 1 or count != int(count):
            self.fail(f"'{value}' is not a whole number above 0; give one such as 8192, 8K or 32k", param, ctx)
        return int(count)


class IntegerList(click.ParamType[tuple[int, ...]]):
    """Whole numbers above 0, separated by commas; kept in order, each once."""

    name = "N,N,…"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            self.fail(
                f"'{value}' is not a list of GPU counts; give whole numbers of at least 1, such as 1,2,4,8", param, ctx
            )
        return tuple(dict.fromkeys(int(part) for part in parts))
