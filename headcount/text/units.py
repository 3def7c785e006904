"""Figures with the units that people read, and as JSON has them."""

import math
from collections.abc import Iterable
from typing import Any

GIB = 2**30


def seconds(value: float | None) -> str:
    """A latency in the unit that reads best."""
    if value is None:
        return "–"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e3:.1f} ms"


def latency_text(name: str, value_s: float | None) -> str:
    """Of `ttft_s` and `e2e_s` as seconds, of the others, such as `tpot_s`, as milliseconds."""
    return seconds(value_s) if name in ("ttft_s", "e2e_s") else milliseconds(value_s)


def dollars(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def whole_dollars(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """Such as `1 GPU` and `2 GPUs`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def gib(count: float) -> str:
    return f"{count / GIB:,.2f} GiB"


def percent(share: float) -> str:
    """Up to four significant digits: `99.5 %`."""
    return f"{100 * share:.4g} %"


def signed(value: float, digits: int = 0) -> str:
    """With its sign, such as `+40`; what rounds to 0 from below is no `-0`."""
    text = f"{value:+,.{digits}f}"
    return text.removeprefix("-") if text.startswith("-") and not float(text.replace(",", "")) else text


def change(share: float, digits: int = 0) -> str:
    """A share more or less, such as `+5%`."""
    return f"{signed(100 * share, digits)}%"


def short(value: float) -> str:
    """Three digits, from 100 on whole."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def finite(value: object) -> Any:
    """The same with null for what is not finite: JSON has no word for it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def assumptions_json(rows: Iterable[tuple[str, str, str]]) -> list[dict[str, object]]:
    """Assumptions as JSON."""
    return [{"name": name, "value": value, "source": source} for name, value, source in rows]


def clock(hour: float) -> str:
    """An hour of the day, such as `7:30`."""
    minutes = round(hour * 60)
    return f"{minutes // 60 % 24}:{minutes % 60:02d}"
