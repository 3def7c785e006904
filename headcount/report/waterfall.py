"""Where one GPU's memory goes, as a chart."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headcount.answers.memory import waterfall
from headcount.report.charts import FIRST, INK, LIMIT, MUTED, PAGE, chart, limit_line
from headcount.text.units import GIB
from kvcache.memory.budget import MemoryBudget

KV_CACHE = "KV cache"
NEEDED = "KV of one request"
HEIGHT = 230


def waterfall_chart(budget: MemoryBudget) -> str:
    """Bars that begin where the one above ends; where vLLM would not start, they pass the GPU's end."""
    said = ", ".join(f"{name} {size / GIB:.1f} GiB" for name, size in parts(budget))
    return chart(lambda drawn: _draw(drawn, budget), name="memory", alt=f"Memory of one GPU: {said}.", height=HEIGHT)


def parts(budget: MemoryBudget) -> list[tuple[str, int]]:
    """What adds up to the GPU's memory, or, where vLLM would not start, to what starting takes.

    `unused` only where the number of blocks was given.
    """
    found = waterfall(budget)[1:]
    if not budget.fits:
        return [*found[:-1], (NEEDED, budget.required_kv_bytes)]
    rest = budget.total_bytes - sum(size for _, size in found)
    return [*found, ("unused", rest)] if rest else found


def _draw(drawn: Figure, budget: MemoryBudget) -> None:
    axes = drawn.subplots()
    colours = {KV_CACHE: FIRST, NEEDED: LIMIT}
    total = budget.total_bytes / GIB
    end = max(total, sum(size for _, size in parts(budget)) / GIB)
    begins = 0.0
    names = []
    for place, (name, size) in enumerate(parts(budget)):
        width = size / GIB
        axes.barh(place, width, left=begins, height=0.66, color=colours.get(name, MUTED))
        _label(axes, place, begins, width, end)
        names.append(name)
        begins += width
    if not budget.fits:
        limit_line(axes, total, "", vertical=True)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    axes.set_xlim(0, end)
    axes.set_xlabel("GiB of one GPU" if budget.fits else f"GiB; dashed: the GPU's {total:,.1f} GiB")


def _label(axes: Axes, place: int, begins: float, width: float, end: float) -> None:
    """A bar's size right of it where there is room, else left of it, else in it."""
    if begins + width < 0.8 * end:
        at, apart, side, colour = begins + width, 4, "left", INK
    elif begins > 0.22 * end:
        at, apart, side, colour = begins, -4, "right", INK
    else:
        at, apart, side, colour = begins + width, -4, "right", PAGE
    axes.annotate(
        f"{width:,.1f} GiB", (at, place), xytext=(apart, 0), textcoords="offset points", ha=side, va="center",
        color=colour,
    )  # fmt: skip
