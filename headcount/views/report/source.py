"""Answers that were kept as JSON, or inside a report."""

from pathlib import Path

from files.outputs import write_whole
from files.reading import InputError
from headcount.queries.saved_answer import read_answer, was_changed
from headcount.views.report import document


def report_file(path: Path, out: Path) -> None:
    """Make a report of a kept answer. Raises InputError where the file is no such answer."""
    answer = read_answer(path)
    try:
        content = document.made(out, answer)
    except (InputError, MemoryError, OSError):  # of the format: the answer is as it should be
        raise
    except Exception as error:  # a template's own errors are of many kinds
        raise was_changed(str(path), error) from None
    write_whole(out, content)
