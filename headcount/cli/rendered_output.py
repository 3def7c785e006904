"""What a command shows of an answer: text or JSON on stdout, warnings and errors on stderr, the exit code."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import click

from files.names import one_line
from headcount.diagnostics import Severity
from headcount.queries.result import Result
from headcount.text.blocks import Line, Table
from headcount.text.units import finite
from headcount.views.shown import blocks
from headcount.views.terminal.drawing import draw


@dataclass(frozen=True, kw_only=True)
class Shown:
    """It holds plain values alone, so that it can be kept."""

    told: tuple[str, ...] = ()  # on stderr, while the answer was worked out
    lines: tuple[tuple[Line | None, Table | None], ...] = ()  # one of them each
    whole: str | None = None  # the answer with all that its report needs, as --json prints it
    alerts: tuple[str, ...] = ()
    code: int

    def show(self, *, as_json: bool) -> int:
        """Print it; the exit code."""
        if as_json:
            assert self.whole is not None, "an answer is printed as JSON once it is complete"
            print(self.whole)
        else:
            draw(line or table or Line() for line, table in self.lines)
        for alert in self.alerts:
            click.echo(alert, err=True)
        return self.code

    def show_again(self, *, as_json: bool) -> int:
        """Print it with what was told on the way; the exit code."""
        for line in self.told:
            click.echo(line, err=True)
        return self.show(as_json=as_json)


def shown(answer: Result, *, is_whole: bool, told: Sequence[str] = ()) -> Shown:
    """What to show of it, and with `is_whole` what its JSON and its report need, which may take some seconds."""
    return Shown(
        told=tuple(told),
        lines=tuple((each, None) if isinstance(each, Line) else (None, each) for each in blocks(answer)),
        whole=json_text(answer.to_json(report=True)) if is_whole else None,
        alerts=tuple(
            f"headcount: {'' if note.severity is Severity.ERROR else f'{note.severity}: '}{one_line(str(note))}"
            for note in answer.alerts
        ),
        code=int(answer.verdict),
    )


def json_text(value: dict[str, object]) -> str:
    """One object; what is not finite becomes null, since JSON has no word for it."""
    return json.dumps(finite(value), indent=2, allow_nan=False)
