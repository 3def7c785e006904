"""Results as text in a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from headcount.text.tables import print_table

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog
    from headcount.text.memory_answer import MemoryAnswer
    from kvcache.memory.budget import MemoryBudget
    from simulator.results import Result

GIB = 2**30
BAR_WIDTH = 60  # characters


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
    from headcount.strict import assumed_notes  # noqa: PLC0415
    from headcount.text.memory_answer import pool, verdict  # noqa: PLC0415

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
