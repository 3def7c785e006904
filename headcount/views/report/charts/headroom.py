"""The bar in the summary: users asked for compared with those that are served."""

from files.documents import ReadJson
from headcount.views.report.charts import svg
from headcount.views.report.charts.scale import Scale

HEIGHT = 102
ROOM = 140  # for the longest label


def headroom(given: ReadJson | None) -> str:
    """As SVG; nothing where nobody is served."""
    if given is None or not given["high"]:
        return ""
    needed, low, users, high = (given[name] for name in ("needed", "low", "users", "high"))
    across = Scale(low=0.0, high=1.04 * max(high, needed or 0), begin=4, end=svg.WIDTH - 8)
    told = f"{low:,} users at 95 % confidence, {users:,} expected, upper end of the 90 % interval {high:,}"
    start, least, mean, most = map(across.at, (0, low, users, high))
    parts = [
        svg.rect(start, 30, least - start, 20, of="bar marked", tip=f"at 95 % confidence: {low:,} users"),
        svg.rect(least, 30, most - least, 20, of="bar pale", tip=f"90 % interval, upper end: {high:,}"),
        svg.line(mean, 26, mean, 54, of="grid strong"),
        _label(least, 68, f"at 95 % confidence: {low:,}"),
        _label(mean, 82, f"expected: {users:,}", of="muted"),
        _label(most, 96, f"upper end (90 %): {high:,}", of="muted"),
    ]
    if needed is not None:
        x = across.at(needed)
        told += f"; {needed:,.0f} needed"
        anchor = "middle" if 50 < x < 400 else "start" if x < 50 else "end"
        parts.append(svg.line(x, 20, x, 54, of="limit-line"))
        parts.append(svg.text(x, 14, f"needed {needed:,.0f}", anchor=anchor, of="limit"))
    return svg.svg("".join(parts), height=HEIGHT, told=told)


def _label(x: float, y: float, text: str, of: str = "") -> str:
    """It ends at its mark; where there is no room before that, it begins there."""
    return svg.text(x, y, text, anchor="end" if x > ROOM else "start", of=of)
