"""The `headcount` command."""

import sys
from importlib import import_module

import click

COMMANDS = {
    "capacity": "Users per GPU count, with an interval: the main job.",
    "simulate": "One load: latency percentiles, KV use, preemptions.",
    "memory": "Where a GPU's memory goes, how many KV blocks remain.",
    "models": "The models known by name, with their sources.",
    "gpus": "The GPUs known by name, with their sources.",
}


class LazyGroup(click.Group):
    """Imports a command only when it is run, so that `--help` answers at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command = import_module(f"headcount.commands.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from headcount.errors import nearest  # noqa: PLC0415  only on a mistake

            raise click.UsageError(f"no command '{args[0]}'{nearest(args[0], list(COMMANDS))}", ctx)
        return super().resolve_command(ctx, args)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="headcount")
def cli() -> None:
    """How many people can these GPUs serve at once, and how many GPUs do these people need?

    A discrete-event simulator of vLLM. Try:

    \b
        headcount capacity --model llama-3.1-8b --gpu h100-sxm --gpus 1,2,4,8
    """


def main() -> None:
    """Run the command line: exit 0 done, 1 target missed, 2 bad input."""
    try:
        code = cli.main(standalone_mode=False)
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        _fail(_one_line(error.format_message()), error)
    except (click.Abort, KeyboardInterrupt):
        click.echo("headcount: stopped", err=True)
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)
    except (ValueError, OSError) as error:
        _fail(_one_line(str(error)))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, error: click.ClickException | None = None) -> None:
    context = getattr(error, "ctx", None)
    hint = f" (see '{context.command_path} --help')" if context is not None else ""
    click.echo(f"headcount: {message}{hint}", err=True)
    sys.exit(2)


def _one_line(text: str) -> str:
    return " ".join(text.split())
