"""Charts as SVG."""

from collections.abc import Sequence
from functools import singledispatch
from itertools import pairwise
from typing import Final

from files.documents import ReadJson
from files.names import shortened
from headcount.views.report.charts import svg
from headcount.views.report.charts.chart import TEXTS, Bar, Bars, Chart, Grid, Limit, Lines, Series
from headcount.views.report.charts.scale import Scale, scale_of

LEFT, RIGHT, TOP, PLOT_HEIGHT, BELOW = 62.0, 14.0, 22.0, 190.0, 46.0
LEGEND_ROW: Final = 17.0
MOST_HITS: Final = 30  # places of a series that show their figure under the pointer
BAR_HEIGHT: Final = 25.0
CHARACTER: Final = 7.0  # width of one, about
LONGEST_NAME: Final = 26
CELL_HEIGHT: Final = 30.0
HEADROOM_HEIGHT: Final = 102
LABEL_ROOM: Final = 140  # for the longest label of the headroom


@singledispatch
def draw(chart: Chart) -> str:
    """The chart as one svg element."""
    raise TypeError(f"no way to draw a {type(chart).__name__}")


@draw.register
def _(chart: Lines) -> str:
    rows = _legend_rows(chart)
    top = TOP + LEGEND_ROW * len(rows)
    bottom, right = top + PLOT_HEIGHT, svg.WIDTH - RIGHT
    across, up = _scales(chart, top, bottom, right)
    parts = [_legend(chart, rows), _axes(chart, across, up, bottom, right)]
    if chart.shaded is not None:
        begin, end, said = chart.shaded
        parts.append(
            svg.rect(across.at(begin), top, across.at(end) - across.at(begin), PLOT_HEIGHT, of="shade", tip=said)
        )
        parts.append(svg.text(across.at(begin) + 4, top + 12, said, of="muted"))
    if chart.is_equal:
        parts.append(svg.line(across.at(up.low), up.at(up.low), across.at(up.high), up.at(up.high), of="grid strong"))
    parts += [_series(chart, each, place, across, up) for place, each in enumerate(chart.series)]
    heights = _label_rows(chart.limits, across)
    parts += [_limit(limit, across, up, height) for limit, height in zip(chart.limits, heights, strict=True)]
    return svg.svg("".join(parts), height=bottom + BELOW, told=chart.told)


def _scales(chart: Lines, top: float, bottom: float, right: float) -> tuple[Scale, Scale]:
    xs = [x for each in chart.series for x in each.x] + [limit.value for limit in chart.limits if limit.is_vertical]
    ys = [y for each in chart.series for values in (each.y, each.low, each.high) for y in values]
    ys += [limit.value for limit in chart.limits if not limit.is_vertical]
    if chart.is_equal:
        both = [*xs, *ys]
        return scale_of(both, LEFT, right, is_log=True), scale_of(both, bottom, top, is_log=True)
    across = scale_of(xs, LEFT, right, is_log=chart.is_log, from_zero=chart.from_zero and not chart.is_log)
    return across, scale_of(ys, bottom, top, from_zero=chart.from_zero)


def _legend_rows(chart: Lines) -> list[list[tuple[int, str, float]]]:
    """Names with their places, as many beside each other as there is room for."""
    if len(chart.series) < 2:
        return []
    rows: list[list[tuple[int, str, float]]] = [[]]
    left = LEFT
    for place, each in enumerate(chart.series):
        width = 34 + CHARACTER * len(each.name)
        if rows[-1] and left + width > svg.WIDTH:
            rows.append([])
            left = LEFT
        rows[-1].append((place, each.name, left))
        left += width
    return rows


def _legend(chart: Lines, rows: list[list[tuple[int, str, float]]]) -> str:
    parts = []
    for number, row in enumerate(rows):
        y = 10 + LEGEND_ROW * (number + 1)
        for place, name, left in row:
            if chart.series[place].has_line:
                parts.append(svg.line(left, y, left + 22, y, of=f"line tone-{place % 4}"))
            parts += [svg.mark(left + 11, y, place), svg.text(left + 27, y + 4, name)]
    return "".join(parts)


def _axes(chart: Lines, across: Scale, up: Scale, bottom: float, right: float) -> str:
    show_x, show_y = TEXTS[chart.x_text], TEXTS[chart.y_text]
    parts = []
    for value in up.ticks(5):
        y = up.at(value)
        parts += [
            svg.line(LEFT, y, right, y, of="grid"),
            svg.text(LEFT - 6, y + 4, show_y(value), anchor="end", of="muted"),
        ]
    for value in across.ticks(5):
        x = across.at(value)
        parts += [svg.line(x, bottom, x, bottom + 4, of="grid strong"),
                  svg.text(x, bottom + 17, show_x(value), anchor="middle", of="muted")]  # fmt: skip
    parts.append(svg.line(LEFT, bottom, right, bottom, of="grid strong"))
    parts.append(svg.text((LEFT + right) / 2, bottom + 36, chart.x_name, anchor="middle"))
    parts.append(svg.text(2, 12, chart.y_name))
    return "".join(parts)


def _series(chart: Lines, each: Series, place: int, across: Scale, up: Scale) -> str:
    points = [(across.at(x), up.at(y)) for x, y in zip(each.x, each.y, strict=True)]
    parts = []
    if each.low:
        upper = [(across.at(x), up.at(y)) for x, y in zip(each.x, each.high, strict=True)]
        lower = [(across.at(x), up.at(y)) for x, y in zip(each.x, each.low, strict=True)]
        parts.append(svg.path([*upper, *lower[::-1]], f"band tone-{place % 4}", is_closed=True))
    if each.has_line:
        parts.append(svg.path(_stairs(points) if each.is_step else points, f"line tone-{place % 4}"))
    show_x, show_y = TEXTS[chart.x_text], TEXTS[chart.y_text]
    tips = [f"{each.name}: {show_y(y)} at {show_x(x)}" for x, y in zip(each.x, each.y, strict=True)]
    every = max(-(-len(points) // MOST_HITS), 1)
    for (x, y), tip in list(zip(points, tips, strict=True))[::every]:
        parts.append(svg.mark(x, y, place, tip) if each.has_points else svg.hit(x, y, tip))
    return "".join(parts)


def _stairs(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Level up to each change: what stays as it is needs no point."""
    turns = [*points[:1], *(two for one, two in pairwise(points) if two[1] != one[1]), *points[-1:]]
    return [step for one, two in pairwise(turns) for step in (one, (two[0], one[1]))] + list(points[-1:])


def _label_rows(limits: Sequence[Limit], across: Scale) -> list[int]:
    """Above which others each label of an upright line stands, so that none lies on another."""
    found: list[int] = []
    taken: list[tuple[int, float, float]] = []
    for limit in limits:
        x, width, row = across.at(limit.value), 22 + CHARACTER * len(limit.label), 0
        left, right = (x - width, x) if x > (LEFT + across.end) / 2 else (x, x + width)
        while limit.is_vertical and any(row == at and left < end and begin < right for at, begin, end in taken):
            row += 1
        if limit.is_vertical:
            taken.append((row, left, right))
        found.append(row)
    return found


def _limit(limit: Limit, across: Scale, up: Scale, row: int) -> str:
    value, label, right, bottom, top = limit.value, limit.label, across.end, up.begin, up.end
    if limit.is_vertical:
        x = across.at(value)
        is_right = x > (LEFT + right) / 2
        side = "end" if is_right else "start"
        where = svg.text(x - 5 if is_right else x + 5, bottom - 7 - LEGEND_ROW * row, label, anchor=side, of="limit")
        return svg.line(x, top, x, bottom, of="limit-line") + where
    y = up.at(value)
    above = y - 5 if y > top + 14 else y + 14
    return svg.line(LEFT, y, right, y, of="limit-line") + svg.text(LEFT + 4, above, label, of="limit")


@draw.register
def _(chart: Bars) -> str:
    longest = max((len(shortened(bar.name, LONGEST_NAME)) for bar in chart.bars), default=1)
    left = min(14 + CHARACTER * longest, 0.45 * svg.WIDTH)
    room = CHARACTER * max((len(bar.label) for bar in chart.bars), default=1)
    right = max(svg.WIDTH - 14 - room, left + 80)
    values = [0.0, *(value for bar in chart.bars for value in (bar.begin, bar.end))]
    values += [chart.limit.value] if chart.limit else []
    low, high = min(values), max(values)
    across = Scale(low=low, high=high if high > low else 1.0, begin=left, end=right)
    bottom = TOP + BAR_HEIGHT * len(chart.bars)
    parts = [_bar(bar, place, across, left) for place, bar in enumerate(chart.bars)]
    parts.append(svg.line(across.at(0.0), TOP, across.at(0.0), bottom, of="grid strong"))
    if chart.limit is not None:
        x = across.at(chart.limit.value)
        side = "middle" if x < 0.8 * svg.WIDTH else "end"
        parts.append(svg.line(x, TOP - 4, x, bottom, of="limit-line"))
        parts.append(svg.text(x, TOP - 5, chart.limit.label, anchor=side, of="limit"))
    for value in across.ticks(4):
        parts.append(svg.text(across.at(value), bottom + 16, TEXTS[chart.text](value), anchor="middle", of="muted"))
    parts.append(svg.text((left + right) / 2, bottom + 34, chart.axis_name, anchor="middle"))
    return svg.svg("".join(parts), height=bottom + 42, told=chart.told)


def _bar(bar: Bar, place: int, across: Scale, left: float) -> str:
    y = TOP + BAR_HEIGHT * place
    begin, end = sorted((across.at(bar.begin), across.at(bar.end)))
    tip = f"{bar.name}: {bar.label}"
    return (
        svg.text(left - 6, y + 16, shortened(bar.name, LONGEST_NAME), anchor="end")
        + svg.rect(begin, y + 4, max(end - begin, 1.0), BAR_HEIGHT - 8, of=f"bar {bar.kind}", tip=tip)
        + svg.text(end + 5, y + 16, bar.label)
    )


@draw.register
def _(chart: Grid) -> str:
    longest = max((len(name) for name, _ in chart.rows), default=1)
    left = min(14 + CHARACTER * longest, 0.4 * svg.WIDTH)
    width = (svg.WIDTH - left - 4) / max(len(chart.columns), 1)
    most = max((value for _, values in chart.rows for value in values if value is not None), default=1.0) or 1.0
    parts = [svg.text(left + width * (place + 0.5), TOP + 6, name, anchor="middle", of="muted")
             for place, name in enumerate(chart.columns)]  # fmt: skip
    top = TOP + 14
    for row, (name, values) in enumerate(chart.rows):
        y = top + CELL_HEIGHT * row
        parts.append(svg.text(left - 6, y + 20, name, anchor="end"))
        for place, value in enumerate(values):
            x, said = left + width * place, "–" if value is None else TEXTS[chart.text](value)
            shade = 0.06 + 0.5 * (value or 0.0) / most
            tip = f"{name}, {chart.columns[place]}: {said}"
            parts.append(svg.rect(x, y, width - 2, CELL_HEIGHT - 2, of="cell", tip=tip, opacity=shade))
            parts.append(svg.text(x + width / 2 - 1, y + 20, said, anchor="middle"))
    bottom = top + CELL_HEIGHT * len(chart.rows)
    parts.append(svg.text(left + width * len(chart.columns) / 2, bottom + 18, chart.x_name, anchor="middle"))
    return svg.svg("".join(parts), height=bottom + 26, told=chart.told)


def headroom(given: ReadJson | None) -> str:
    """The bar in the summary: users asked for compared with those that are served; nothing where nobody is."""
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
    return svg.svg("".join(parts), height=HEADROOM_HEIGHT, told=told)


def _label(x: float, y: float, text: str, of: str = "") -> str:
    """It ends at its mark; where there is no room before that, it begins there."""
    return svg.text(x, y, text, anchor="end" if x > LABEL_ROOM else "start", of=of)
