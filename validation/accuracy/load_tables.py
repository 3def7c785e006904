"""Tables of errors by group, and by kind of load."""

from collections.abc import Mapping, Sequence
from typing import Any

from validation.markdown import table

Results = Mapping[str, Any]
WHICH = ("measured", "simulated", "as_sent")  # of a chat load's figures
KINDS = {
    "all": "all",
    "dense": "dense",
    "experts": "MoE",
    "dp-experts": "MoE, data parallel",
    "old-experts": "MoE before vLLM 0.15",
}


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def scoreboard(results: Results) -> str:
    """The worst group first."""
    lines = [
        (row["model"], row["gpu"], row["version"], f"{row['n']}", f"{row['tpot_median']:.1f}",
         f"{row['ttft_median']:.1f}", f"{row['tpot_covered']:.0f} %", f"{row['ttft_covered']:.0f} %",
         "–" if row["low_over"] is None else f"{row['low_over']:.0f} % of {row['limits']}")
        for row in results["held-out"]["scoreboard"]
    ]  # fmt: skip
    heads = ("model", "GPU", "vLLM", "n", "TPOT", "TTFT", "TPOT within 90 %", "TTFT within 90 %",
             "users at 95 % too many")  # fmt: skip
    return table(heads, lines)


def users(results: Results) -> str:
    """Intervals of TTFT where requests arrive at random."""
    lines = [
        (KINDS[kind], f"{row['n']}", f"{row['groups']}", f"{row['ttft_median']:.1f}",
         f"{row['ttft_covered']:.0f} %, ±{row['ttft_half_width']:.0f} %")
        for kind, row in results["held-out"]["intervals_of_users"].items()
    ]  # fmt: skip
    return table(("requests at a rate, H100", "loads", "groups", "TTFT, median error", "within, half-width"), lines)


def chat(results: Results) -> str:
    """What 450 users were served with, and what is simulated."""
    found = results["chat"]
    lines = [
        (_percentile(name), f"{1e3 * measured:,.1f} ms",
         *(text for which, errors in found["error_percent"].items()
           for text in (f"{1e3 * found[which][name]:,.1f} ms", f"{signed(errors[name])} %")))
        for name, measured in found["measured"].items() if name in found["error_percent"]["simulated"]
    ]  # fmt: skip
    measured, simulated, as_sent = (f"{100 * found[which]['attainment']:.1f} %" for which in WHICH)
    lines.append(("TTFT within 1 s and TPOT within 50 ms", measured, simulated, "", as_sent, ""))
    return table(("450 users", "measured", "simulated", "error", "at the measured times", "error"), lines)


def _percentile(name: str) -> str:
    metric, percentile = name.split("_")
    return f"{metric.upper()} {percentile}"


def lone_prompts(results: Results) -> str:
    """Errors of single requests by the length of their prompt."""
    lines = [
        (row["kind"], f"{row['prompt']:,}", f"{row['output']}", _repeats(row["ttft_s"]), signed(row["ttft"]),
         signed(row["tpot"]))
        for row in results["lone-prompts"]["rows"]
    ]  # fmt: skip
    heads = ("Llama-3.1-8B", "prompt tokens", "output tokens", "TTFT, measured", "error of the median", "TPOT")
    return table(heads, lines)


def _repeats(found_s: Sequence[float]) -> str:
    """From the shortest to the longest."""
    low, high = (f"{1e3 * seconds:.0f}" for seconds in found_s)
    return f"{low} ms" if low == high else f"{low} to {high} ms"


def public_reports(results: Results) -> str:
    """Points of issues and posts, by GPU and kind of server."""
    lines = [
        (row["gpu"], row["kind"], f"{row['n']}", *(_median(row, name) for name in ("tpot", "ttft", "throughput")),
         f"{row['inside']} of {row['judged']}" if row["judged"] else "–")
        for row in results["public-reports"]["rows"]
    ]  # fmt: skip
    return table(("GPU", "server", "figures", "TPOT", "TTFT", "tokens/s", "means within 90 %"), lines)


def loads_of_reports(results: Results) -> str:
    """The same points by kind of load."""
    lines = [
        (row["load"], f"{row['n']}", *(_median(row, name) for name in ("tpot", "ttft", "throughput")),
         f"{row['inside']} of {row['judged']}" if row["judged"] else "–")
        for row in results["public-reports"]["loads"]
    ]  # fmt: skip
    return table(("load", "figures", "TPOT", "TTFT", "tokens/s", "means within 90 %"), lines)


def _median(row: Mapping[str, Any], name: str) -> str:
    return "–" if row[name] is None else f"{row[name]:.0f} ({signed(row[f'{name}_bias'])})"
