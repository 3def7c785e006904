"""The tables of docs/measurements, from the figures of validation/accuracy."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from validation import markdown
from validation.accuracy import load_tables
from validation.accuracy.bars import BARS
from validation.accuracy.load_tables import KINDS, signed
from validation.markdown import DOCS, table

Results = Mapping[str, Any]
MEASURED = DOCS / "measurements"
EVEN = 0.05  # ends of an interval are alike where they differ by less, as shares
PAGES = (
    DOCS.parent / "README.md",
    *(MEASURED / f"{name}.md" for name in ("step-times", "requests", "intervals", "memory", "other-tools")),
)
TPOT_MISS, TTFT_MISS = 15.0, 30.0  # median error in % of a group that is listed as missed
REASONS = {  # model, GPU, precision, release: what is seen, and why as far as it is known
    ("Qwen/Qwen3-235B-A22B-FP8", "h200-sxm", "fp8", "0.12.0"): (
        "measured steps are as long as if all experts were read at every batch; cause unknown"
    ),
    ("Qwen/Qwen3-32B", "h100-sxm", "fp8", "0.12.0"): (
        "three rows; one of 48 clients has a fifth of the TTFT and less than half the TPOT of bf16 rows of 32: prefix "
        "hits are likely, not recorded"
    ),
}
RIVALS = (  # tool, settings it was judged on, TPOT, TTFT, E2E, answered, whose figures
    ("AIConfigurator 0.12", "its own shipped vLLM runs (the rows above), those it answers", "21.3", "30.5", "–", "36 %",
     "measured on a 2-core shared machine"),
    ("BLIS", "38 runs", "6.5 (ITL)", "18.4", "6.8", "–", "measured on a 2-core shared machine"),
    ("LLMServingSim 2", "its own runs", "–", "–", "≤ 2–4", "–", "measured on a 2-core shared machine"),
    ("LLMServingSim 2", "third-party runs", "–", "72.5", "18.8", "–", "measured on a 2-core shared machine"),
    ("LLM-Emu (runs real vLLM code)", "–", "–", "≤ 10.4", "≤ 5.3", "–", "claimed by their authors"),
    ("Revati (runs real vLLM code)", "–", "–", "–", "5", "–", "claimed by their authors"),
    ("AISimulate", "a Mooncake trace on 4 B200", "2.8", "13.5", "–", "–",
     "claimed by their authors; reuse of prefixes 0.3 %"),
    ("Vidur", "–", "–", "–", "< 9", "–", "claimed by their authors; users report 700 % at p50 on vLLM 0.9"),
)  # fmt: skip


def filled(page: str, results: Results) -> str:
    """A page with its tables written anew. Raises ValueError where page, tables and results do not go together."""

    def made(name: str) -> str:
        try:
            return TABLES[name](results)
        except KeyError as missing:
            raise ValueError(f"the results have no {missing}, which '{name}' needs; measure that part") from None

    return markdown.filled(page, {name: partial(made, name) for name in TABLES if f"generated: {name} -->" in page})


def text(results: Results) -> str:
    """Every table whose part was measured."""
    parts = []
    for name, made in TABLES.items():
        try:
            parts.append(f"{name}\n\n{made(results)}\n")
        except KeyError:
            continue
    return "\n".join(parts)


def verdicts(results: Results) -> list[tuple[str, float, float]]:
    """Each bar as (what, figure, bar) in percent; last that fits err no more on what they have not seen than tables."""
    found = []
    for path, what, bar in BARS:
        value: Any = results
        for key in path:
            value = value[key]
        found.append((what, float(value), bar))
    unseen, tables = results["held-out"]["releases"], results["closed-loops"]["prior"]
    return found + [
        (
            f"{name}, left out of the fit, compared with kernel tables alone",
            float(unseen[key]),
            round(float(tables[key]), 1),
        )
        for name, key in (("TPOT", "tpot_median"), ("mean of TPOT", "tpot_mean"))
    ]


def _closed_loops(results: Results) -> str:
    loops, held = results["closed-loops"], results["held-out"]
    fitted = results["calibrated"]
    rows = [
        ("fitted without the model's runs on this GPU and release", held["releases"]),
        ("fitted to runs of other models", held["other_models"]),
        ("kernel tables alone, no fit to runs", loops["prior"]),
        ("fitted to four fifths of the runs, on the last", held["other_runs"]),
        ("shipped", loops["shipped"]),
        ("shipped, `headcount simulate` with what the table says", results["outsider"]["all"]),
    ]
    lines = [(name, f"{row['n']}", *_both(row)) for name, row in rows]
    both = (f"{fitted[f'{name}_median']:.1f} / {fitted[f'{name}_mean']:.1f}" for name in ("tpot", "ttft"))
    lines.append((f"fitted to 5 runs of the deployment, on its others ({fitted['groups']} groups)",
                  f"{fitted['n']}", *both))  # fmt: skip
    return table(("constants", "settings", "TPOT", "TTFT"), lines)


def _both(row: Mapping[str, Any]) -> tuple[str, str]:
    tpot, ttft = (
        f"{row[f'{name}_median']:.1f} / {row[f'{name}_mean']:.1f} ({signed(row[f'{name}_bias'])})"
        for name in ("tpot", "ttft")
    )
    return tpot, ttft


def _answered(results: Results) -> str:
    loops = results["closed-loops"]
    reasons = ", ".join(f"{count} {reason}" for reason, count in loops["left_out"].items())
    share = f"{100 * loops['answered_rows'] / loops['rows']:.0f} %"
    return (
        f"{loops['answered_rows']} of {loops['rows']} rows are answered ({share}; "
        f"left out: {reasons}), as {loops['settings']} settings with repeats reduced to their median, of which "
        f"{loops['failed']} could not be simulated. All of them took {loops['cpu_s']:.0f} s of one processor, "
        f"{loops['lasted_s']:.0f} s on a shared two-core machine."
    )


def _kinds(results: Results) -> str:
    typed = {(row["kind"], row["gpu"]): row for row in results["outsider"]["kinds"]}
    lines = [
        (row["kind"], row["gpu"], f"{row['n']:.0f}", *_both(row), *_both(typed[row["kind"], row["gpu"]]))
        for row in results["closed-loops"]["kinds"]
    ]
    return table(("", "GPU", "n", "TPOT", "TTFT", "TPOT, as typed", "TTFT, as typed"), lines)


def _outsider(results: Results) -> str:
    lines = [(name, *_both(row)) for name, row in results["outsider"]["changes"].items()]
    return table(("half of the Blackwell settings", "TPOT", "TTFT"), lines)


def _misses(results: Results) -> str:
    lines = []
    for row in results["closed-loops"]["groups"]:
        if row["tpot_median"] > TPOT_MISS or row["ttft_median"] > TTFT_MISS:
            key = (row["model"], row["gpu"], row["precision"], row["version"])
            lines.append((" ".join(key), f"{row['n']:.0f}", *_both(row), REASONS.get(key, "unknown")))
    return table(("group", "n", "TPOT", "TTFT", "why"), lines)


def _knees(results: Results) -> str:
    held = results["held-out"]
    rows = [
        ("fitted without the model's runs on this GPU and release", held["knees"]),
        *((f"of these: {KINDS[kind]}", row) for kind, row in held["knee_kinds"].items()),
        ("the same under a limit on mean TTFT (50 ms to 5 s)", held["ttft_knees"]),
        ("shipped", results["closed-loops"]["knees"]),
        ("kernel tables alone, no fit to runs", results["closed-loops"]["prior_knees"]),
        ("fitted to 5 runs of the deployment", results["calibrated"]["knees"]),
    ]
    lines = [
        (name, f"{row['n']}", f"{row['median']:.1f} / {row['mean']:.1f} ({signed(row['bias'])})",
         *(_share(row[key]) for key in ("optimistic", "covered", "low_over", "low_optimistic")))
        for name, row in rows
    ]  # fmt: skip
    heads = ("constants", "limits", "error in %", "over 20 % too many", "within the 90 % interval",
             "lower end too many", "lower end over 20 % too many")  # fmt: skip
    return table(heads, lines)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _models(results: Results) -> str:
    lines = [(row["model"], f"{row['n']:.0f}", *_both(row)) for row in results["held-out"]["models"]]
    return table(("model left out of the fit", "n", "TPOT", "TTFT"), lines)


def _intervals(results: Results) -> str:
    held = results["held-out"]
    parts = (
        ("not measured: no run of the model, GPU and release in the fit", held["intervals"]),
        ("another model: in neither the fit nor the spread", held["intervals_of_other_models"]),
        ("measured: other runs of the deployment in the fit", held["intervals_of_other_runs"]),
        ("as shipped, every deployment measured", results["intervals"]),
        ("as typed, launch settings unknown", results["outsider"]["intervals"]),
    )
    lines = [
        (name, KINDS[kind], f"{row['n']}", *(_interval(row, metric) for metric in ("tpot", "ttft")))
        for name, found in parts
        for kind, row in found.items()
    ]
    return table(("90 % interval", "settings", "n", "TPOT: within, half-width", "TTFT: within, half-width"), lines)


def _interval(row: Mapping[str, Any], metric: str) -> str:
    covered, shorter, longer = (row[f"{metric}_{name}"] for name in ("covered", "shorter", "half_width"))
    is_even = abs((1 - shorter / 100) * (1 + longer / 100) - 1) < EVEN
    return f"{covered:.0f} %, ±{longer:.0f} %" if is_even else f"{covered:.0f} %, −{shorter:.0f} to +{longer:.0f} %"


def _open_runs(part: str) -> Callable[[Results], str]:
    def made(results: Results) -> str:
        found = results[part]
        lines = [(row["run"], *(signed(row[name]) for name in ("e2e", "tpot", "ttft"))) for row in found["rows"]]
        all_rows = found["all"]
        lines.append((f"median of {all_rows['n']}, absolute (bias)", *_middle(all_rows)))
        if part == "h100":
            held = results["held-out"]["requests"]["all"]
            lines.append(("the same, fitted without the model", *_middle(held)))
        return table(("run", "mean E2E", "mean TPOT", "mean TTFT"), lines)

    return made


def _tails(results: Results) -> str:
    found = results["h100-tails"]
    names = ("e2e", "e2e_warm", "ttft", "ttft_warm")
    lines = [(row["run"], *(signed(row[name]) for name in names)) for row in found["rows"]]
    lines.append(("median, absolute", *(f"{found['all'][f'{name}_median']:.1f}" for name in names)))
    return table(("run", "p99 of E2E", "from 20 s on", "p99 of TTFT", "from 20 s on"), lines)


def _middle(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{row[f'{name}_median']:.1f} ({signed(row[f'{name}_bias'])})" for name in _OPEN)


_OPEN = ("e2e", "tpot", "ttft")


def _rtx(results: Results) -> str:
    names = ("e2e_s.mean", "tpot_s.mean", "ttft_s.mean", "ttft_s.p99")
    lines = [(row["run"], *(signed(row[name]) for name in names)) for row in results["rtx"]["rows"]]
    return table(("run", "mean E2E", "mean TPOT", "mean TTFT", "p99 TTFT"), lines)


def _cycles(results: Results) -> str:
    names = ("shipped_decode_mean", "others_decode_mean", "decode_mean", "decode_median", "binned_mean")
    lines = [
        (row["run"], f"{row['steps']}", *(f"{row[name]:.1f}" for name in names)) for row in results["cycles"]["rows"]
    ]
    every = results["cycles"]["all"]
    steps = sum(row["decode_steps"] for row in results["cycles"]["rows"])
    whole = [f"{every[name]:.1f}" if name in every else "–" for name in names]
    lines.append(("all decode steps together", f"{steps:,}", *whole))
    heads = ("run", "steps", "shipped", "fitted to the other two", "fitted to other stretches, mean", "median",
             "least possible")  # fmt: skip
    return table(heads, lines)


def _drafts(results: Results) -> str:
    found = {(row["method"], row["drafts"]): row for row in results["drafts"]["rows"]}
    best = results["drafts"]["best"]
    lines = [("none", *_tpot(found["none", 0], 0), "", "", "")]
    for count in sorted({drafts for _, drafts in found} - {0}):
        both = (_tpot(found[name, count], best[name]) for name in ("eagle", "eagle3"))
        lines.append((f"{count}", *(cell for cells in both for cell in cells)))
    heads = ("draft tokens", "EAGLE, measured", "simulated", "error", "EAGLE-3, measured", "simulated", "error")
    return table(heads, lines)


def _tpot(row: Mapping[str, Any], best: Mapping[str, int] | int) -> tuple[str, str, str]:
    """Measured with simulated TPOT, each in bold where it is the shortest of its kind."""
    cells = []
    for which in ("measured", "simulated"):
        text_ms = f"{row[f'{which}_ms']:.2f} ms"
        is_best = not isinstance(best, int) and best[which] == row["drafts"]
        cells.append(f"**{text_ms}**" if is_best else text_ms)
    return cells[0], cells[1], f"{signed(row['error'])} %"


def _memory_terms(results: Results) -> str:
    part = results["memory"]
    how = {"shipped": "fitted on these logs", "held out by model": "held out"}
    lines = []
    for term in ("weights", "activation peak"):
        for key, name in how.items():
            lines.append((f"{term}, {name}", *_figures(part["terms_percent"][key][term])))
    pools = part["kv_tokens_percent"]
    for key, name in how.items():
        lines.append((f"KV-cache tokens of the full logs, {name}", *_figures(pools[key]["full logs"])))
    count = pools["held out by model"]["all"]["pools"]
    lines.append((f"KV-cache tokens of all {count} servers whose pool is known, held out",
                  *_figures(pools["held out by model"]["all"])))  # fmt: skip
    return table(("what", "mean", "median", "worst"), lines)


def _figures(row: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(f"{row[name]:.2f}" for name in ("mean", "median", "worst"))


def _memory_pools(results: Results) -> str:
    lines = [
        (name, f"{row['pools']}", f"{row['covered']:.0f} %", f"{row['half_width']:.1f}", f"{row['median']:.2f}")
        for name, row in results["memory"]["kv_tokens_percent"]["held out by model"].items()
    ]
    heads = ("servers, held out by model", "pools", "within the interval", "median half-width, % of the pool",
             "median error, %")  # fmt: skip
    return table(heads, lines)


def _rivals(results: Results) -> str:
    loops, h100 = results["closed-loops"], results["h100"]["all"]
    shipped = loops["shipped"]
    share = f"{loops['answered_rows'] / loops['rows']:.0%}".replace("%", " %")
    ours = [
        ("**Headcount**", f"{loops['settings']} closed-loop settings", f"{shipped['tpot_median']:.1f}",
         f"{shipped['ttft_median']:.1f}", "–", share, "measured here"),
        ("**Headcount**", f"{h100['n']} loads of H100 requests", f"{h100['tpot_median']:.1f}",
         f"{h100['ttft_median']:.1f}", f"{h100['e2e_median']:.1f}", "–", "measured here"),
    ]  # fmt: skip
    return table(("tool", "judged on", "TPOT", "TTFT", "E2E", "rows answered", "whose figures"), [*ours, *RIVALS])


def _trust(results: Results) -> str:
    """What README says of the errors."""
    held, shipped = results["held-out"], results["closed-loops"]["shipped"]
    servers = results["memory"]["kv_tokens_percent"]["held out by model"]["full logs"]
    worst = held["scoreboard"][0]
    lines = [
        ("TPOT, TTFT, on a model × GPU × release not in the fit",
         f"{shipped['n']} measured settings of six models on H100, H200, B200, B300", _rounded(held["releases"])),
        ("the same, the worst of its groups", f"{worst['n']} settings of {worst['model']} on vLLM {worst['version']}",
         _rounded(worst)),
        ("the same, as shipped", "", _rounded(shipped)),
        ("largest concurrency within a TPOT limit, on the same",
         f"{held['knees']['n']} measured limits",
         f"{held['knees']['median']:.0f} %; "
         f"{_share(held['knees']['optimistic'])} of limits overestimated by over 20 %"),
        ("the same, at 95 % confidence", "",
         f"{_share(held['knees']['low_over'])} of limits overestimated"),
        ("KV-cache size, on a model not in the fit", f"{servers['pools']} start-up logs",
         f"{servers['mean']:.1f} % (mean)"),
        ("scheduling decisions", "vLLM 0.33's, 0.32's and 0.27's own scheduler, 2,000 random cases each; 1,000 with "
         "SSM state on 0.33 and 0.32; SGLang 0.5.23's own scheduler, 2,200 cases", "no difference"),
    ]  # fmt: skip
    return table(("what", "compared with", "median error"), lines)


def _rounded(row: Mapping[str, Any]) -> str:
    return f"{row['tpot_median']:.0f} %, {row['ttft_median']:.0f} %"


def _verdicts(results: Results) -> str:
    lines = [
        (what, f"{value:.1f}", f"{bar:g}", "holds" if value <= bar else "**missed**")
        for what, value, bar in verdicts(results)
    ]
    return table(("median error in %", "found", "bar", ""), lines)


TABLES: dict[str, Callable[[Results], str]] = {
    "trust": _trust,
    "bars": _verdicts,
    "closed-loops": _closed_loops,
    "answered": _answered,
    "kinds": _kinds,
    "misses": _misses,
    "models": _models,
    "scoreboard": load_tables.scoreboard,
    "users": load_tables.users,
    "chat": load_tables.chat,
    "lone-prompts": load_tables.lone_prompts,
    "public-reports": load_tables.public_reports,
    "loads-of-reports": load_tables.loads_of_reports,
    "knees": _knees,
    "outsider": _outsider,
    "intervals": _intervals,
    "h100": _open_runs("h100"),
    "h100-aggregates": _open_runs("h100-aggregates"),
    "h100-tails": _tails,
    "rtx": _rtx,
    "cycles": _cycles,
    "drafts": _drafts,
    "memory-terms": _memory_terms,
    "memory-pools": _memory_pools,
    "rivals": _rivals,
}
