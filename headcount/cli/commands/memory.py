"""`headcount memory`: the per-GPU waterfall, whether it fits, what the KV cache holds."""

from typing import Any

import click
from click.core import ParameterSource

from files.errors import HeadcountError
from headcount.cli.command import Command, section
from headcount.cli.option_types import flag, option
from headcount.cli.options import deployment_options, output_options, report_options
from simulator.engines.values import IntegerList, TokenCount

MAX_USERS = 1_000_000


@click.command("memory", cls=Command)
@deployment_options()
@section(
    "Traffic",
    option(
        "--mean-context",
        TokenCount(),
        "Tokens of a typical conversation.  [default: mean prompt with answer of the chat preset]",
    ),
    option(
        "--users",
        IntegerList("numbers of users", MAX_USERS),
        "Numbers of users: show how many tokens each can hold at once.",
        default="1,10,100,1000",
    ),
)
@section(
    "Output",
    flag(
        "--compare",
        "Compare tensor-parallel sizes, weight formats and KV-cache formats in a table; those given stay fixed.",
    ),
)
@report_options
@output_options
def command(**values: Any) -> int:
    """Whether a model fits on a GPU under vLLM, where the memory goes, how many conversations its KV blocks hold.

    Exit code 2 where it does not fit, with what is missing and what to change.
    """
    from headcount.cli.output import finish  # noqa: PLC0415
    from headcount.queries.memory import memory  # noqa: PLC0415  imported once the command runs
    from headcount.queries.memory_comparison import memory_comparison  # noqa: PLC0415

    report, as_json, compare = (values.pop(name) for name in ("report", "as_json", "compare"))
    values.pop("seed")
    if compare:
        _check_users()
    answer = (memory_comparison if compare else memory)(**values)
    return finish(answer, report, as_json=as_json)


def _check_users() -> None:
    """Raise HeadcountError where a comparison would leave --users unanswered."""
    source = click.get_current_context().get_parameter_source("users")
    if source is not ParameterSource.DEFAULT:
        raise HeadcountError(
            "--users: the table of --compare does not say what each user can hold; leave out one of the two, or say "
            "with --mean-context how long a conversation is"
        )
