"""A process that answers one question, as the command line does, and ends."""

import os
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import click

from files.errors import HeadcountError
from files.names import one_line
from files.reading import InputError, check_confined, reads_confined_to
from files.registry import search_path
from headcount.cli.main import OURS
from headcount.cli.saved_answers import json_text
from headcount.queries.result import Progress, Result
from headcount.queries.simulate import simulate
from headcount.text.blocks import Block, Table
from headcount.views.report.document import render
from headcount.views.shown import blocks
from headcount.web.fields import QUESTIONS, command_of, fields_of
from headcount.web.saved_jobs import SavedJob, saved_job_of
from headcount.web.scenario import Scenario
from simulator.study.executors.processes import begin_worker

MOST_PARTS = 40  # blocks of an answer so far that are shown


@dataclass(frozen=True)
class Seen:
    """What a worker tells on its way."""

    done: int
    total: int
    note: str
    estimate: str  # a first figure
    found: str
    so_far: tuple[dict[str, object], ...]  # blocks of the answer


@dataclass(frozen=True)
class Answered:
    kept: SavedJob
    report: str
    figures: str  # the object of --json


@dataclass(frozen=True)
class Refused:
    """Why there is no answer; `is_fault` where Headcount is to blame."""

    why: str
    is_fault: bool = False


def work(pipe: Connection, memory_bytes: int) -> None:
    """Wait for a scenario and the folder with its files, which alone may be read; answer it.

    What cannot be sent any more was asked by a server that is gone.
    """
    begin_worker()
    _bound_memory(memory_bytes)
    _warm_up()
    with suppress(EOFError, BrokenPipeError):
        scenario, folder = pipe.recv()
        pipe.send(_answered(scenario, folder, pipe))


def _warm_up() -> None:
    """Import and load while nobody waits: the first run on a machine compiles the kernels."""
    for question in QUESTIONS:
        command_of(question)
    simulate("llama-3.1-8b", "h100-sxm", input_len=10, output_len=2, concurrency=1, num_requests=1)


def _bound_memory(memory_bytes: int) -> None:
    """Where the system can: the process gets MemoryError instead of the machine's last memory."""
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415  not on Windows

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _answered(scenario: Scenario, folder: Path, pipe: Connection) -> Answered | Refused:
    os.chdir(folder)
    hearing = _Hearing(pipe)
    packages = [Path(__file__).parents[2] / name for name in OURS]
    try:
        with reads_confined_to(folder, *packages, *search_path()):
            _run(scenario, hearing)
            assert hearing.answer is not None, "a command ends with an answer"
            asked = replace(hearing.answer, asked=scenario.command)
            found = asked.to_json(report=True)
            figures = json_text({key: value for key, value in found.items() if key != "report"})
            return Answered(saved_job_of(scenario, hearing.answer), render(found), figures)
    except click.ClickException as error:
        return Refused(one_line(error.format_message()))
    except MemoryError:
        return Refused("the run does not fit in the memory of a job; ask for fewer requests, users or GPUs")
    except OSError as error:
        return Refused(f"{error.filename or 'the machine'}: {error.strerror or error}")
    except HeadcountError as error:
        return Refused(one_line(str(error)))
    except Exception as error:
        return Refused(one_line(f"{type(error).__name__}: {error}"), is_fault=True)


def _run(scenario: Scenario, hearing: "_Hearing") -> None:
    command = command_of(scenario.question)
    with command.make_context(QUESTIONS[scenario.question][-1], scenario.words, obj=hearing) as context:
        _check_names(scenario, context)
        command.invoke(context)


def _check_names(scenario: Scenario, context: click.Context) -> None:
    """Raise HeadcountError for a file that a pasted line or a start-up log names: nobody uploaded it."""
    for field in fields_of(scenario.question):
        value = context.params.get(str(field.parameter.name))
        if (field.is_file or field.may_be_file) and isinstance(value, str | Path):
            try:
                check_confined(Path(value))  # whether it is there or not
            except InputError:
                raise HeadcountError(f"{field.label} '{value}' is a path on the server; upload the file") from None


class _Hearing:
    """Hears the command in place of the terminal."""

    def __init__(self, pipe: Connection) -> None:
        self.answer: Result | None = None
        self._pipe = pipe

    def watch(self, now: Progress) -> None:
        so_far = blocks(now.so_far) if now.so_far is not None and now.so_far.rows() else []
        parts = tuple(map(_part, so_far[:MOST_PARTS]))
        self._pipe.send(Seen(now.done, now.total, now.note, now.note if now.is_estimate else "", now.found, parts))

    def answered(self, answer: Result) -> None:
        self.answer = answer


def _part(block: Block) -> dict[str, object]:
    """A block as a template draws it."""
    if not isinstance(block, Table):
        return {"bold": block.bold, "text": block.text}
    sides = ["text" if place in block.text_columns else "figure" for place in range(len(block.columns))]
    rows = [list(zip(row, sides, strict=False)) for row in block.rows]
    return {"columns": list(zip(block.columns, sides, strict=True)), "rows": rows}
