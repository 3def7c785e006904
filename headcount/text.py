"""Results as text in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headcount.tables import print_table

if TYPE_CHECKING:
    from calibrate.startup_log import StartupLog
    from headcount.memory_answer import MemoryAnswer
    from kvcache.memory import MemoryBudget
    from simulator.capacity_table import CapacityQuestion, CapacityRow
    from simulator.deployment import ReplicaPlan
    from simulator.latency_model import LatencyModel
    from simulator.results import Result

GIB = 2**30
BAR_WIDTH = 60  # characters
Summary = dict[str, float | None]


def console() -> Console:
    """Stdout as wide as the terminal, or wide enough for every table where it is a file."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=160)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table whose first column is text and whose others are figures."""
    made = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), header_style="bold")
    for number, name in enumerate(columns):
        made.add_column(name, justify="left" if number == 0 else "right", overflow="fold")
    return made


def seconds(value: float | None) -> str:
    """A latency in the unit that reads best."""
    if value is None:
        return "–"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def milliseconds(value: float | None) -> str:
    return "–" if value is None else f"{value * 1e3:.1f} ms"


def counted(gpus: int) -> str:
    return "1 GPU" if gpus == 1 else f"{gpus} GPUs"


def gib(count: float) -> str:
    return f"{count / GIB:,.2f} GiB"


def capacity_text(
    question: "CapacityQuestion", rows: Sequence["CapacityRow"], *, workload: str, report: object
) -> None:
    """The answer first, then the table, then what it rests on."""
    from simulator.capacity_table import best_row  # noqa: PLC0415  loaded by the command that calls this

    out = console()
    out.print(
        f"[bold]{escape(question.architecture.name)}[/] on {question.gpu.name}, "
        f"workload {escape(workload)}: {question.slo}"
    )
    best = best_row(rows)
    if best.users:
        out.print(f"[bold]{_headline(best)}[/] (mean {best.users:,}, up to {best.users_high:,})")
        if best.step_time_error is not None and best.plan is not None:
            out.print(
                f"{best.users_if_slower:,} if every step takes {best.step_time_error:.0%} longer than simulated, "
                f"{best.users_if_faster:,} if as much shorter: {_nine_in_ten(best.plan.latency)}"
            )
        out.print()
    print_table(out, _capacity_table(rows))
    for row in rows:
        if row.reason:
            out.print(escape(f"{counted(row.gpus)}: {row.reason}"))
    out.print()
    for line in _footnotes(question, rows):
        out.print(line, style="dim", markup=False)
    if report is not None:
        out.print(f"report: {report}", markup=False)


def _headline(best: "CapacityRow") -> str:
    if best.users_low:
        return f"{best.users_low:,} users on {counted(best.gpus)} with 95 % confidence"
    return f"No number to sign on {counted(best.gpus)}: {why_none_to_sign(best)}"


def _nine_in_ten(latency: "LatencyModel") -> str:
    if latency.calibrated:
        return "nine times in ten your server lies between"
    return "nine in ten servers lie between" + ("" if latency.is_measured else ", as judged without a measurement")


def why_none_to_sign(row: "CapacityRow") -> str:
    """What leaves the interval of users open down to none."""
    if row.users_low_sampling and row.step_time_error is not None:
        longer = f"{row.step_time_error:.0%} longer, which their error allows"
        return f"not even one user is served where steps take {longer}; a latency profile narrows it"
    return "the interval over the replications is too wide; more of them narrow it"


def layout_text(replicas: int, tp: int, dp: int) -> str:
    """Replicas × GPUs of each."""
    return f"{replicas} × TP{tp}" + (f" DP{dp}" if dp > 1 else "")


def _capacity_table(rows: Sequence["CapacityRow"]) -> Table:
    from simulator.capacity_table import latency_summary  # noqa: PLC0415  loaded by the command that calls this

    made = table(
        "GPUs", "layout", "users low", "users", "users high", "in flight", "req/s", "tokens/s", "TTFT p50", "TTFT p95",
        "TPOT p50", "TPOT p95", "$/hour", "$/M tokens", "what binds",
    )  # fmt: skip
    made.columns[-1].justify, made.columns[-1].no_wrap = "left", True
    for row in rows:
        cells = [str(row.gpus), layout_text(row.replicas, row.tp, row.dp)]
        cells += [f"[bold]{row.users_low:,}[/]", f"{row.users:,}", f"{row.users_high:,}"]
        if row.point is None:
            made.add_row(*cells)
            continue
        ttft, tpot = latency_summary(row.point, "ttft_s"), latency_summary(row.point, "tpot_s")
        cost = row.usd_per_million_output_tokens
        made.add_row(
            *cells,
            f"{row.point.mean('in_flight'):,.1f}",
            f"{row.point.mean('requests_per_s'):,.1f}",
            f"{row.point.mean('output_tokens_per_s'):,.0f}",
            seconds(ttft["p50"]),
            seconds(ttft["p95"]),
            milliseconds(tpot["p50"]),
            milliseconds(tpot["p95"]),
            f"{row.usd_per_hour:,.2f}",
            "–" if cost is None else f"{cost:.2f}",
            row.binding or "",
        )
    return made


def _footnotes(question: "CapacityQuestion", rows: Sequence["CapacityRow"]) -> list[str]:
    from headcount.strict import assumed_notes  # noqa: PLC0415
    from workloads.trace import Trace  # noqa: PLC0415

    notes = [
        "users: active sessions, thinking or waiting. users low is the number to sign, the lower end of an interval "
        f"that holds {held_by_interval(question, rows)}. Latencies are those at 'users'.",
        f"think time: {question.think_time_s:.0f} s on average"
        + ("; users of a trace without sessions are λ (Z + R)" if isinstance(question.workload, Trace) else ""),
    ]
    plans = [row.plan for row in rows if row.plan is not None]
    left_out = dict.fromkeys(item for plan in plans for item in plan.not_simulated)
    notes = [*assumed_notes((*question.architecture.assumptions, *left_out)), *notes]
    if not plans:
        return notes
    pools = list(dict.fromkeys(pool_note(plan.budget) for plan in plans))
    return [*notes, *pools, error_note_of(rows)]


def error_note_of(rows: Sequence["CapacityRow"]) -> str:
    """How far the step times of the row whose number leads may be off at its load; of some row there must be any."""
    from simulator.capacity_table import best_row, mean_sequences  # noqa: PLC0415  loaded by the command that calls this

    best = best_row([row for row in rows if row.plan is not None])
    assert best.plan is not None, "a row that runs has a plan"
    return error_note(best.plan.latency, None if best.point is None else mean_sequences(best.point))


def held_by_interval(question: "CapacityQuestion", rows: Sequence["CapacityRow"]) -> str:
    """Which errors the interval of users holds."""
    are_given = any(row.plan is not None and row.plan.latency.is_given for row in rows)
    replications = f"what {question.replications} replications leave open"
    return replications if are_given else f"{replications} and how far step times may be off"


def pool_note(budget: "MemoryBudget") -> str:
    """The KV blocks that were simulated with, beside what vLLM may log instead."""
    blocks = f"KV cache at TP {budget.tp}: {budget.num_gpu_blocks:,} blocks {pool_owner(budget)}"
    low, high = budget.num_gpu_blocks_low, budget.num_gpu_blocks_high
    return f"{blocks}, as given" if low == high else f"{blocks}; vLLM logs {low:,} to {high:,} nine times in ten"


def pool_owner(budget: "MemoryBudget") -> str:
    """Whose the budget's KV blocks are."""
    return "an attention replica" if budget.data_parallel_size > 1 else "a replica"


def settings_note(plan: "ReplicaPlan") -> str:
    """What the server is taken to have been started with."""
    found = plan.settings
    cache = plan.architecture.dtype if found["kv_cache_dtype"] == "auto" else found["kv_cache_dtype"]
    return (
        f"vLLM {found['vllm_version']}, {cache} KV cache, memory utilization {found['gpu_memory_utilization']:g}, "
        f"steps of up to {found['max_num_batched_tokens']:,} tokens and {found['max_num_seqs']:,} sequences"
    )


def error_note(latency: "LatencyModel", sequences: float | None = None) -> str:
    """How far the step times may be off with so many sequences running, in words."""
    if latency.is_given:
        return "every step lasts as long as given: the decisions are vLLM's, the times are yours"
    errors = latency.tpot_log_error, latency.ttft_log_error
    tpot, ttft = (error.half_width if sequences is None else error.half_width_at(sequences) for error in errors)
    within = f"nine in ten mean latencies lie within ±{tpot:.0%} for TPOT, ±{ttft:.0%} for TTFT"
    if not latency.is_measured:
        return f"step times of this GPU are scaled from its specifications, not measured; as judged, {within}"
    if latency.calibrated:
        count = len(latency.warnings)
        outside = f"; {count} setting{'s lie' if count > 1 else ' lies'} outside it" if count else ""
        return f"step times from your latency profile: {within}{outside}"
    return f"step times are not calibrated on your server: {within}"


def simulate_text(result: "Result", *, title: str, notes: Sequence[str]) -> None:
    """Latency percentiles, then rates and use."""
    out = console()
    out.print(f"[bold]{escape(title)}[/]\n")
    made = table("", "mean", "p50", "p90", "p95", "p99")
    found = result.to_json()
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s"):
        unit = seconds if name in ("ttft_s", "e2e_s") else milliseconds
        made.add_row(
            name.removesuffix("_s").upper(), *(unit(found[name][q]) for q in ("mean", "p50", "p90", "p95", "p99"))
        )
    print_table(out, made)
    out.print()
    for name, value in _rates(result):
        out.print(f"  {name:<18}{value}")
    out.print()
    for note in notes:
        out.print(note, style="dim", markup=False)


def _rates(result: "Result") -> list[tuple[str, str]]:
    rows = [
        (
            "requests",
            f"{result.num_finished:,} of {result.num_requests:,} finished in {result.end_s - result.start_s:,.1f} s",
        ),
        ("throughput", f"{result.requests_per_s:,.2f} requests/s, {result.output_tokens_per_s:,.0f} output tokens/s"),
        (
            "in flight",
            f"{result.in_flight_mean:,.1f} (running {result.running_mean:,.1f}, waiting {result.waiting_mean:,.1f})",
        ),
        ("KV cache", f"{result.kv_usage_mean:.1%} used on average, {result.kv_usage_max:.1%} at most"),
        ("prefix hits", f"{result.prefix_hit_rate:.1%} of prompt tokens"),
        ("preemptions", f"{result.num_preemptions:,}"),
    ]
    return rows if result.users_mean is None else [("users", f"{result.users_mean:,.0f}"), *rows]


def memory_text(answer: "MemoryAnswer") -> None:
    """The verdict, the waterfall of one GPU, what the replica can hold, what it rests on."""
    from headcount.memory_answer import pool, verdict  # noqa: PLC0415
    from headcount.strict import assumed_notes  # noqa: PLC0415

    out, budget = console(), answer.budget
    out.print(
        f"[bold]{escape(budget.model)}[/] on {budget.gpu}, {budget.split}, "
        f"{_weights(budget)} weights, {budget.kv_cache_dtype} KV cache"
    )
    out.print(f"[bold]{verdict(answer)}[/]")
    for line in assumed_notes(answer.assumed):
        out.print(escape(line))
    out.print()
    out.print(_waterfall_table(budget, bar_width(out, [name for name, _ in waterfall(budget)])))
    out.print()
    for line in pool(answer):
        out.print(line, markup=False)
    for name, value, source in budget.assumptions:
        out.print(escape(f"  {name}: {value} ({source})"), style="dim")


def _weights(budget: Any) -> str:
    return "16-bit" if budget.quantization == "none" else str(budget.quantization)


def bar_width(out: Console, names: Sequence[str]) -> int:
    """Characters of the longest bar beside names and GiB."""
    return max(0, min(BAR_WIDTH, out.width - max(map(len, names)) - 14))


def _waterfall_table(budget: "MemoryBudget", width: int) -> Table:
    """Bars one after the other, as wide as the GPU's memory or as what is needed where that is more."""
    made = table("per GPU", "GiB", "")
    made.columns[2].justify, made.columns[2].no_wrap = "left", True
    (_, total), *parts = waterfall(budget)
    scale = width / max(total, sum(max(value, 0) for _, value in parts))
    made.add_row("total", f"{total / GIB:,.2f}", "█" * round(total * scale))
    begins = 0
    for name, value in parts:
        end = begins + max(value, 0)
        bar = " " * round(begins * scale) + "█" * (round(end * scale) - round(begins * scale))
        made.add_row(name, f"{value / GIB:,.2f}", bar)
        begins = end
    return made


def log_text(log: "StartupLog", terms: Sequence[tuple[str, float | None, float]]) -> None:
    """A server's start-up log beside what would have been predicted for it; the log is what counts."""
    out = console()
    out.print(f"\nbeside {escape(log.path.name)}, vLLM {log.vllm_version}, whose KV blocks are used")
    made = table("GiB per GPU", "logged", "modelled", "off by")
    for name, logged, modelled in terms:
        digits = 0 if name == "KV blocks" else 2
        off = "–" if not logged else f"{modelled / logged - 1:+.1%}"
        made.add_row(name, "–" if logged is None else f"{logged:,.{digits}f}", f"{modelled:,.{digits}f}", off)
    print_table(out, made)


def waterfall(budget: "MemoryBudget") -> list[tuple[str, int]]:
    """Parts of one GPU's memory, top to bottom; they add up to the total."""
    return [
        ("total", budget.total_bytes),
        ("left to others", budget.total_bytes - budget.requested_bytes),
        ("weights", budget.weights_bytes),
        ("activation peak", budget.activation_peak_bytes),
        ("non-torch", budget.non_torch_bytes),
        ("CUDA graphs", budget.cuda_graph_bytes),
        ("KV cache", budget.available_kv_bytes),
    ]


def listing(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A plain table of what is known."""
    made = table(*columns)
    for column in made.columns:
        column.justify = "left"
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    print_table(console(), made)
