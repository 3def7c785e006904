"""A result as text, as HTML for notebooks, and as the data of its report; each question's words are in `views.of`."""

import hashlib
import platform
from collections.abc import Iterable, Mapping
from copy import copy
from datetime import UTC, datetime
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, cast

from files.documents import ReadJson
from headcount.diagnostics import Severity
from headcount.inputs.question import CALL
from headcount.queries.result import Result
from headcount.text.blocks import Block, Line, block_json
from headcount.version import __version__
from headcount.views.terminal.drawing import as_html, as_text

if TYPE_CHECKING:
    from headcount.views.summary.summary import Summary

PACKAGES = ("numpy", "numba", "scipy")
MOST_TEXT: Final = 256 * 1024  # bytes of a file that is kept whole
MOST_TOGETHER: Final = 512 * 1024
FIRST: Final = {  # what must be known before the answer, by code
    "log-contradicted": "The start-up log contradicts itself or this question",
    "traffic-cut": "Not all the traffic asked for",
}
"""The diagnostic that stands in the answer itself: another question was answered than the one that was asked."""
MORE: Final = "{} shows every column, what they mean, and where the figures come from"
ASSUMED = "assumed: "  # how a diagnostic begins that stands above the figures


class View(Protocol):
    """A module of `headcount.views.of`; `summary(result)` and `details(result)`, a report's own data, may be absent."""

    def head(self, result: object, /) -> list[Block]:
        """What was asked, and the answer in a sentence."""

    def body(self, result: object, /) -> list[Block]:
        """What stands below it."""


def view_of(result: Result) -> View:
    """The words of a result's question."""
    return cast(View, import_module(f"headcount.views.of.{result.view}"))


def blocks(result: Result) -> list[Block]:
    """The whole text: assumptions about the model first, other diagnostics last; warnings and errors are apart."""
    view = view_of(result)
    quiet = [each for each in result.diagnostics if each.severity in (Severity.INFO, Severity.ASSUMPTION)]
    first = [Line(str(each)) for each in quiet if each.remedy or each.text.startswith(ASSUMED)]
    last = [Line(f"  {each}", dim=True) for each in quiet if not each.remedy and not each.text.startswith(ASSUMED)]
    urgent = [Line(f": {each}", bold=FIRST[each.code]) for each in result.diagnostics if each.code in FIRST]
    head, body = view.head(result), view.body(result)
    if not result.explain and any(isinstance(block, Line) and block.dim for block in body):
        body = [block for block in body if not (isinstance(block, Line) and block.dim)]
        while body and body[-1] == Line():
            body.pop()
        last.append(Line(MORE.format("explain=True" if result.asked.startswith(CALL) else "--explain"), dim=True))
    return [*head[:1], *urgent, *head[1:], *first, Line(), *body, *last]


def summary(result: Result) -> "Summary":
    """What the person who decides reads first; `result` is complete."""
    view = view_of(result)
    if hasattr(view, "summary"):
        return cast("Summary", view.summary(result))
    from headcount.views.summary.summary import Summary, risk_of  # noqa: PLC0415  what reports alone show

    said = [str(block) for block in view.head(result) if str(block)] or [result.kind]
    return Summary(question=said[0], answer=said[-1], risk=risk_of(result.diagnostics, ""))


def details(result: Result) -> Mapping[str, object]:
    """What a report shows beyond the summary and the text; `result` is complete."""
    view = view_of(result)
    return cast(Mapping[str, object], view.details(result)) if hasattr(view, "details") else {}


def report_json(result: Result) -> dict[str, object]:
    """All that a report is made of; `result` is complete."""
    return {
        "kind": result.kind,
        "summary": summary(result).to_json(),
        "body": [block_json(block) for block in view_of(result).body(_explained(result))],
        "asked": result.asked,
        "inputs": inputs_json(result.inputs),
        "versions": versions_json(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        **details(result),
    }


def _explained(result: Result) -> Result:
    """The same, shown with every column; what was worked out of it is kept."""
    found = copy(result)
    vars(found)["explain"] = True
    return found


def text(result: Result) -> str:
    """As the command prints it."""
    return as_text([*blocks(result), *(Line(f"{each.severity}: {each}") for each in result.alerts)])


def notebook(result: Result) -> str:
    """As a notebook shows it."""
    return as_html([*blocks(result), *(Line(f": {each}", bold=str(each.severity)) for each in result.alerts)])


def check_report(argument: str, path: Path) -> None:
    """Raise HeadcountError where no report can be written there."""
    from headcount.views.report import document  # noqa: PLC0415  imported where one is asked for

    document.check_report(argument, path)


def write_report(path: Path, answer: ReadJson) -> None:
    """Write an answer's JSON as a report."""
    from headcount.views.report import document  # noqa: PLC0415  as above

    document.write(path, answer)


def versions_json() -> dict[str, str]:
    """With which the same figures come again."""
    return {
        "headcount": __version__,
        **{name: version(name) for name in PACKAGES},
        "Python": platform.python_version(),
    }


def inputs_json(inputs: Iterable[tuple[str, Path]]) -> list[dict[str, object]]:
    """Each file with its size and SHA-256, and with its text where that is small; names of catalogs are no files."""
    found, room = [], MOST_TOGETHER
    for argument, path in dict.fromkeys(inputs):
        if not path.is_file():
            continue
        size = path.stat().st_size
        text = _text(path.read_bytes()) if size <= min(MOST_TEXT, room) else None
        room -= size if text is not None else 0
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append({"argument": argument, "name": path.name, "bytes": size, "sha256": digest, "text": text})
    return found


def _text(content: bytes) -> str | None:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return None
