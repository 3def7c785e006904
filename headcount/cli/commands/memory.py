"""`headcount memory`: the per-GPU waterfall, whether it fits, what the KV cache holds."""

import click
from click.core import ParameterSource

from files.errors import HeadcountError
from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.option_types import flag, option
from headcount.cli.options import answer_options, deployment_options
from headcount.cli.output import finish
from headcount.queries.memory import memory, memory_comparison
from simulator.engines.values import IntegerList, TokenCount

MAX_USERS = 1_000_000


@click.command("memory", cls=QuestionCommand)
@deployment_options()
@section(
    "Traffic",
    option(
        "--mean-context",
        TokenCount(),
        "Tokens of a typical conversation.  [default: mean prompt and answer of the chat preset]",
    ),
    option(
        "--users",
        IntegerList("numbers of users", MAX_USERS),
        "Numbers of users. The answer shows how many tokens each can hold at once.",
        default="1,10,100,1000",
    ),
)
@section(
    "Output",
    flag(
        "--compare",
        "Compare tensor-parallel sizes, weight formats and KV-cache formats in a table. Those that you give stay "
        "fixed.",
    ),
)
@answer_options
def command(given: Given) -> int:
    """Show whether a model fits on a GPU, what uses the memory, and how many conversations the KV cache holds.

    If it does not fit, the output says what is missing and what to change, and the exit code is 2.
    """
    source = click.get_current_context().get_parameter_source("users")
    if given.is_on("compare") and source is not ParameterSource.DEFAULT:  # it would leave --users unanswered
        raise HeadcountError(
            "--users does not go with --compare; leave out one of them, or give the length of a conversation with "
            "--mean-context"
        )
    question = memory_comparison if given.is_on("compare") else memory
    return finish(question(**given.arguments(question)), given)
