"""What `headcount shadow` says of each window."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from calibrate.shadow.drifts import Drift, Kind
from headcount.queries.shadow import Shadow
from headcount.text.units import latency_text, milliseconds, seconds, short, signed
from simulator.deployment import Deployment
from simulator.latency.model import ERROR_SEQUENCES

COLUMNS: Final = ("from", "req/s", "TTFT", "ITL", "running", "waiting", "KV used", "prefix hits", "headroom")
WIDTHS: Final = (5, 6, 17, 17, 9, 9, 11, 11)
MINUTE_S: Final = 60.0
MOST_BIAS: Final = 2.0  # times the simulated steps: beyond it, another server was simulated
_NAMES: Final = {
    "ttft_s": "TTFT", "itl_s": "ITL", "requests_per_s": "requests/s", "prompt_tokens": "prompt tokens",
    "output_tokens": "output tokens", "prefix_hit_rate": "prefix hits", "engines": "engines",
}  # fmt: skip
_CAUSES: Final = {
    Kind.STEPS: "likely a power or clock limit, or other work on the GPUs",
    Kind.QUEUE: "requests wait in the engine though it should have room: likely fewer KV blocks, or a lower "
    "--max-num-seqs, than simulated",
    Kind.FRONT_END: "neither steps nor the engine's queue explain it: likely the API server, or work before the first "
    "step such as images",
}


def header() -> str:
    """Titles of the columns."""
    return _row(COLUMNS)


def window_line(found: Shadow, think_time_s: float | None) -> str:
    """Measured, with what was expected in brackets."""
    window = found.window
    return _row(
        (
            _clock(window.start_s, window.length_s),
            short(window.requests_per_s),
            _pair(found, "ttft_s", seconds),
            _pair(found, "itl_s", milliseconds),
            _pair(found, "running", _whole),
            _pair(found, "waiting", _whole),
            _pair(found, "kv_usage", _percent),
            _pair(found, "prefix_hit_rate", _percent),
            headroom_text(found, think_time_s),
        )
    )


def headroom_text(found: Shadow, think_time_s: float | None) -> str:
    """What more the servers take within the SLO, and when the trend is there."""
    most, now = found.most_requests_per_s, found.window.requests_per_s
    if most is None or not now:
        return "–"
    if not math.isfinite(most):
        return "no limit"
    text = f"{signed(most - now, 1)} req/s ({most / now:.1f} ×)"
    if think_time_s is not None:
        users, more = (found.users(think_time_s, rate) for rate in (now, most - now))
        if users is not None and more is not None:
            text = f"{signed(more)} users ({users:,.0f} now)"
    if found.saturates_in_s:
        text += f", used up in {_span(found.saturates_in_s)} by the trend"
    return text


def drift_line(drift: Drift) -> str:
    """One sentence, with the likely cause."""
    name, begin = _NAMES[drift.figure], _clock(drift.since_s)
    if drift.kind is Kind.ENGINES:
        return f"  {begin} engines: {drift.after:.0f} answer, {drift.before:.0f} before"
    if drift.kind is Kind.LOAD:
        return f"  {begin} load: {_change(drift.figure, drift.before, drift.after)}"
    if drift.is_over:
        return f"  {begin} over: {name} is again what it was for such a load"
    text = f"{name} is {drift.factor:.2f} × what it was for such a load ({latency_text(drift.figure, drift.after)})"
    if drift.kind is Kind.STEPS:
        text += "; steps take longer" if drift.figure == "itl_s" else "; steps take longer, too"
    return f"  {begin} drift: {text}" + (f": {_CAUSES[drift.kind]}" if drift.kind in _CAUSES else "")


def bias_lines(bias: Mapping[str, float], deployment: Deployment) -> Iterator[str]:
    """How the first windows compare with the simulation; drifts are compared with them."""
    model = deployment.latency
    for name, error in (("itl_s", model.tpot_log_error), ("ttft_s", model.ttft_log_error)):
        if name not in bias:
            continue
        half = error.log_half_width_at(ERROR_SEQUENCES)
        where = "within" if abs(math.log(bias[name])) <= half else "outside"
        text = f"  at first: {_NAMES[name]} is {bias[name]:.2f} × the simulated one, {where} the 90 % interval"
        if name == "itl_s" and not 1 / MOST_BIAS < bias[name] < MOST_BIAS:
            yield f"{text}; are the model, --gpu and -tp those of the server? Else nothing here holds"
        else:
            yield text + ("" if where == "within" else "; 'headcount calibrate check' on its recording looks for why")


def _change(figure: str, before: float, after: float) -> str:
    name = _NAMES[figure]
    if figure == "prefix_hit_rate":
        return f"{_percent(after)} of prompt tokens are found in the prefix cache, {_percent(before)} before"
    text = f"{short(after)} {name}, {short(before)} before"
    return f"{text} ({signed(100 * (after / before - 1))} %)" if before else text


def _pair(found: Shadow, name: str, words: Callable[[float], str]) -> str:
    measured = words(found.window.figures[name]) if name in found.window.figures else "–"
    return f"{measured} ({words(found.expected[name].mean)})" if name in found.expected else measured


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _row(cells: tuple[str, ...]) -> str:
    return "  ".join(cell.rjust(width) for cell, width in zip(cells[:-1], WIDTHS, strict=False)) + f"  {cells[-1]}"


def _clock(unix_s: float, length_s: float = MINUTE_S) -> str:
    return time.strftime("%H:%M:%S" if length_s < MINUTE_S * 0.99 else "%H:%M", time.localtime(unix_s))


def _span(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
