"""The `headcount` command."""

import io
import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Any

import click

from files.errors import HeadcountError
from files.garbage import gc_relaxed
from files.names import one_line, shortened
from headcount.cli.command_group import NearestGroup
from headcount.version import __version__

COMMANDS = {
    "demo": "A first answer in a few seconds, with a line about each number.",
    "plan": "The cheapest fleet for a number of users: which GPUs, how many, what it costs.",
    "capacity": "How many users each number of GPUs serves, with an interval.",
    "compare": "Compare GPUs, parallel layouts, number formats, limits and routers, ranked by cost per user.",
    "fleet": "How many users a heterogeneous fleet serves: pools of different GPUs behind one router.",
    "optimize": "Search for the engine arguments that serve the most users.",
    "whatif": "Parameter sweep or sensitivity analysis: what a longer context, more users or another setting changes.",
    "simulate": "Simulate one load: latency percentiles, KV-cache use, preemptions.",
    "memory": "Whether a model fits on GPUs, what uses the memory, and how many conversations fit at once.",
    "training-memory": "Training memory per GPU, and the smallest cluster that is large enough.",
    "workload": "List, describe, convert, generate and fit workloads.",
    "models": "List the models known by name, with sources.",
    "gpus": "List the GPUs known by name, with prices and sources.",
    "web": "Serve the web page: the same questions in the browser, with progress, sliders and history.",
    "mcp": "Serve the questions as tools to an agent (Model Context Protocol).",
    "shadow": "Compare a running fleet with its simulation: drifts, headroom, time to saturation.",
    "emulate": "Serve OpenAI's API at simulated speed, to test gateways, autoscalers and dashboards without a GPU.",
    "calibrate": "Fit step times to a real server, and check answers against it.",
    "report": "Write a report of a saved answer: HTML, Markdown, PDF, CSV.",
    "diff": "Compare two saved answers: what changed in the question and in the answer.",
    "cache": "Show or clear the cache: saved simulations and answers, compiled kernels.",
    "vllm": "Install and list real vLLM releases to compare with.",
    "sglang": "Install and list real SGLang releases to compare with.",
}


OURS = ("files", "kvcache", "workloads", "simulator", "calibrate", "headcount")
FAULT = 70  # EX_SOFTWARE of BSD's sysexits.h


class LazyGroup(NearestGroup):
    """Imports a command only when it is run, so that `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with gc_relaxed():
            command = import_module(f"headcount.cli.commands.{cmd_name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """A command's exit code; Ctrl-C is told here, since click would add an empty line.

        Raises RuntimeError where something else than rich before a closed pipe ends the process.
        """
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo("headcount: stopped", err=True)
            raise click.exceptions.Exit(130) from None
        except SystemExit as error:
            if isinstance(error.__context__, BrokenPipeError):
                raise
            raise RuntimeError(f"the command left with {error!r}") from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__)
@click.option("--debug", is_flag=True, expose_value=False, help="Show the traceback of an error.")
def cli() -> None:
    """How many people can these GPUs serve at once, and how many GPUs do these people need?

    A discrete-event simulator of vLLM. Try:

    \b
        headcount plan --model llama-3.1-8b --users 500
        headcount capacity --model llama-3.1-8b --gpu h100-sxm --gpus 1,2,4,8
    """


def main() -> None:
    """Run the command line: exit 0 done, 1 target missed, 2 bad input, 4 refused by --strict, 130 Ctrl-C.

    70 is a fault of Headcount: what comes from outside should have been refused where it came in.
    """
    _print_any_character()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's own: for small matrices they spin, 0.1 s a core
    told: set[str] = set()  # Python's own memory of them ends when a library changes its filters
    warnings.formatwarning = lambda message, *_, **__: _warning(str(message), told)
    try:
        code = cli.main(prog_name="headcount", standalone_mode=False)
        if sys.stdout is not None:  # the caller may have closed it
            sys.stdout.flush()
    except SystemExit:  # how click and rich leave when whoever read the output has had enough
        code = 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = 2
    except click.NoSuchOption as error:
        code = _fail(_engine_flag_text(error) or error.format_message(), error)
    except click.ClickException as error:
        code = _fail(error.format_message(), error)
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  for the interpreter's own flush at exit
        code = 0
    except click.Abort:
        click.echo("headcount: stopped", err=True)
        code = 130
    except OSError as error:
        _debug()
        place = str(error.filename or "the output")
        code = _fail(f"{place if len(place) < 200 else place[:100] + '…'}: {error.strerror or error}")
    except HeadcountError as error:
        _debug()
        code = _fail(str(error), exit_code=error.exit_code)
    except MemoryError:
        code = _fail("the run does not fit in this machine's memory; ask for fewer requests, users or GPUs")
    except Exception as error:
        _debug()
        code = _fail_by_fault(error)
    sys.exit(code if isinstance(code, int) else 0)


def _engine_flag_text(error: click.NoSuchOption) -> str:
    """What is done with a flag of the engine that is no option here, as in a pasted line; "" where it is none."""
    asks_of_engines = error.ctx is not None and any(each.name == "max_num_seqs" for each in error.ctx.command.params)
    if not asks_of_engines:
        return ""
    from simulator.engines.flags import REFUSED, option_text, read_flag  # noqa: PLC0415  for others' time

    engine = "sglang" if any(word.rpartition("=")[2] == "sglang" for word in sys.argv) else "vllm"
    name = error.option_name.lstrip("-").replace("_", "-")
    group, _ = read_flag(engine, name)
    is_typing_error = bool(error.possibilities) and (group is None or name not in group.flags)
    if group is None or (is_typing_error and group.effect != REFUSED):
        return ""
    return option_text(group, shortened(error.option_name))


def _warning(message: str, told: set[str]) -> str:
    """A warning in one line; nothing where it was told before."""
    if message in told:
        return ""
    told.add(message)
    return f"headcount: warning: {one_line(message)}\n"


def _is_debugging() -> bool:
    return "--debug" in sys.argv[1:] or os.environ.get("HEADCOUNT_DEBUG") == "1"


def _debug() -> None:
    if _is_debugging():
        traceback.print_exc()


def _fail_by_fault(error: Exception) -> int:
    """Tell what failed, whose fault it is, how to report it."""
    told = f"{type(error).__name__}: {error}".removesuffix(": ")
    more = "the lines above" if _is_debugging() else "what --debug shows"
    fault = f"this is a bug in Headcount {__version__}, not in your input"
    return _fail(f"{shortened(told, 300)}; {fault}: report it with the command, its files and {more}", exit_code=FAULT)


def _print_any_character() -> None:
    """A stream that lacks a character, such as one in ASCII a bar, shows a question mark instead of stopping there."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")


def _fail(message: str, error: click.ClickException | None = None, exit_code: int = 2) -> int:
    context = getattr(error, "ctx", None)
    hint = f" (see '{context.command_path} --help')" if context is not None else ""
    click.echo(f"headcount: {one_line(message)}{hint}", err=True)
    return exit_code
