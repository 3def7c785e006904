"""A workload's description as one HTML page."""

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from boundary.outputs import write_whole
from headcount.answers.workloads.describe import DescribeAnswer
from headcount.report.charts import FIRST, MAX_POINTS, SECOND, chart, thousands
from headcount.report.html import figure, figures, join, page, paragraph, table
from headcount.text.blocks import Block, Table
from workloads.description.arrivals import counts, earliest_arrival_s
from workloads.description.reuse import PrefixReuse

MAX_BARS = 120  # windows in the chart of rates


def write(path: Path, answer: DescribeAnswer) -> None:
    """Write the page; the file appears whole or not at all."""
    charts = [each for each in (_rate(answer), _lengths(answer), _reuse(answer.description.reuse)) if each]
    sections = [
        ("charts", "In pictures", figures(*charts)),
        ("figures", "Every figure", join(*(_html(block) for part in answer.figure_parts() for block in part))),
        ("not-told", "What it does not tell", join(*map(paragraph, answer.description.untold))),
        ("how-read", "How it was read", join(*map(paragraph, answer.how_read))),
        ("again", "Run it again", paragraph(answer.asked)),
    ]
    write_whole(path, page("describe.html", sections, workload=answer.workload.name, setting=str(answer.head()[0])))


def _html(block: Block) -> str:
    """A line or a table, without the blanks that indent it in a terminal."""
    if not isinstance(block, Table):
        return paragraph(str(block).strip())
    rows = [[cell.strip() for cell in row] for row in block.rows]
    return table([name.strip() for name in block.columns], rows, caption="")


def _rate(answer: DescribeAnswer) -> str:
    """Requests per second over the trace."""
    found = answer.description.arrivals
    if found is None:
        return ""
    times = np.sort(earliest_arrival_s(answer.description.table))
    width_s = max(found.duration_s / MAX_BARS, 1e-9)
    rates = counts(times - times[0], width_s) / width_s

    def draw(drawn: Figure) -> None:
        axes = drawn.subplots()
        axes.stairs(rates, np.arange(len(rates) + 1) * width_s / 60, color=FIRST)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("minutes from the first request")
        axes.set_ylabel("requests/s")
        thousands(axes.yaxis)

    alt = f"Requests per second over {found.duration_s / 60:,.1f} minutes."
    note = f"Each step is {width_s:,.3g} s long; the mean is {found.mean_per_s:,.3g} requests/s."
    return figure("When requests arrive", chart(draw, name="rate", alt=alt), note)


def _lengths(answer: DescribeAnswer) -> str:
    """Distributions of prompt and answer tokens."""
    lengths = answer.description.table
    shares = np.linspace(0, 100, MAX_POINTS)

    def draw(drawn: Figure) -> None:
        axes = drawn.subplots()
        for values, colour, label in (
            (lengths.prompt_tokens, FIRST, "prompt"),
            (lengths.output_tokens, SECOND, "answer"),
        ):
            axes.plot(np.percentile(values, shares), shares / 100, color=colour, label=label)
        axes.set_xscale("log")
        axes.set_xlabel("tokens")
        axes.set_ylim(0, 1)
        thousands(axes.xaxis)
        axes.legend(loc="lower right")

    alt = "Distribution of prompt and answer tokens, on a logarithmic axis."
    return figure("How long they are", chart(draw, name="lengths", alt=alt), "Share of requests up to each length.")


def _reuse(reuse: PrefixReuse | None) -> str:
    """Hit rate by size of the cache, for every size."""
    if reuse is None:
        return ""
    sizes = np.unique(np.geomspace(1, max(reuse.num_distinct_blocks, 2), MAX_POINTS // 4).astype(np.int64))
    rates = [reuse.hit_rate(int(size)) for size in sizes]

    def draw(drawn: Figure) -> None:
        axes = drawn.subplots()
        axes.plot(sizes * reuse.block_size / 1e6, rates, color=FIRST)
        axes.set_xscale("log")
        axes.set_ylim(bottom=0)
        axes.set_xlabel("KV cache, million tokens")
        axes.set_ylabel("share of prompt blocks")
        thousands(axes.xaxis)

    alt = f"Share of prompt blocks found in an LRU prefix cache by its size, up to {reuse.ideal_hit_rate:.1%}."
    note = "One cache, requests one after the other; a server's cache also holds what is being answered."
    return figure("What a prefix cache would find", chart(draw, name="reuse", alt=alt), note)
