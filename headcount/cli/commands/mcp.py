"""`headcount mcp`: the questions as tools of an agent."""

from importlib.util import find_spec

import click

from files.errors import HeadcountError
from headcount.cli.command import Command


@click.command("mcp", cls=Command)
def command() -> int:
    """Serve the questions as tools to an agent, by the Model Context Protocol over stdin and stdout.

    An agent's configuration names the command: headcount with the argument mcp. Tools: plan, capacity, compare, whatif,
    simulate, memory, check; resources: models, GPUs and workloads. Needs headcount[mcp].
    """
    if find_spec("mcp") is None:
        raise HeadcountError("the Model Context Protocol needs mcp; install headcount[mcp]")
    import anyio  # noqa: PLC0415  an optional extra

    from headcount.agents.server import serve  # noqa: PLC0415

    anyio.run(serve)
    return 0
