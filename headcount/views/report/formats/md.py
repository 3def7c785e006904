"""Markdown: the same sections, each chart as its table."""

from collections.abc import Iterator, Sequence
from functools import singledispatch
from unicodedata import category

from files.names import printable
from headcount.views.report.charts.chart import Chart
from headcount.views.report.document import Report
from headcount.views.report.parts import Command, File, Folded, Part, Table, Text


def missing() -> str:
    """Nothing is needed."""
    return ""


def made(report: Report) -> str:
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    first = report.summary
    yield f"# {_safe(first['question'])}\n\n**{_safe(first['answer'])}**\n"
    yield from (f"* {_safe(name)}: {_safe(figure)}" for name, figure in first["figures"])
    if options := first["options"]:
        yield f"\n{_table(options['title'], options['columns'], options['rows'])}"
        yield from [f"\n{_safe(options['note'])}"] * bool(options["note"])
    for title, said in (("Confidence", first["sure"]), ("Risks", first["risk"])):
        if said:
            yield f"\n**{title}.** {_safe(said)}"
    if first["confirm"]:
        yield "\n**Assumptions to confirm first:**\n"
        yield from (f"{place}. {_safe(each)}" for place, each in enumerate(first["confirm"], 1))
        yield from [f"\n{_safe(first['confirm_together'])}"] * bool(first["confirm_together"])
    if first["words"]:
        yield "\n**Terms on this page:**\n"
        yield from (f"* {_safe(word)}: {_safe(meaning)}" for word, meaning in first["words"])
    for section in report.shown:
        yield f"\n## {section.title}\n"
        yield from (_shown(part) for part in section.parts)
    if report.absent:
        yield "\n## Not part of this question\n"
        yield from (f"* {section.title}: `{section.shown_by}`" for section in report.absent)


@singledispatch
def _shown(part: Part) -> str:
    raise TypeError(f"no way to write a {type(part).__name__}")


@_shown.register
def _(part: Text) -> str:
    return "\n".join([f"{_safe(part.text)}\n"] * bool(part.text) + [f"* {_safe(item)}" for item in part.items] + [""])


@_shown.register
def _(part: Table) -> str:
    return _table(part.title, part.columns, part.rows)


@_shown.register
def _(part: Chart) -> str:
    columns, rows = part.table()
    return _table(part.title, columns, rows) + (f"\n{_safe(part.note)}\n" if part.note else "")


@_shown.register
def _(part: Command) -> str:
    return f"{_safe(part.says)}\n\n{_fenced(part.line)}\n"


@_shown.register
def _(part: File) -> str:
    return f"{_safe(part.says or part.name)}:\n\n{_fenced(part.text)}\n"


@_shown.register
def _(part: Folded) -> str:
    return "\n".join(_shown(each) for each in part.parts)


def _fenced(text: str) -> str:
    """Code that no run of backticks in it can end."""
    fence = "```"
    while fence in text:
        fence += "`"
    lines = ("".join(map(_printable, line.expandtabs())) for line in text.rstrip().splitlines())
    return "\n".join((fence, *lines, fence))


def _printable(char: str) -> str:
    return char if char.isprintable() or category(char) == "Zs" else "?"  # Zs: spaces of every width


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(_safe(cell).replace('|', chr(92) + '|') or ' ' for cell in cells)} |"

    head = [f"**{_safe(title)}**\n"] * bool(title)
    return "\n".join([*head, line(columns), f"|{' --- |' * len(columns)}", *map(line, rows), ""])


def _safe(text: str) -> str:
    """In one line that a terminal may show, with neither HTML nor links."""
    line = printable(" ".join(str(text).split()))
    for char in "\\[]":
        line = line.replace(char, f"\\{char}")
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
