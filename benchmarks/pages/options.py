"""The table of docs/reference/engine-options.md, from vLLM's engine arguments."""

from collections.abc import Callable

from benchmarks.markdown import table
from simulator.engines.argument import reference_rows
from simulator.engines.vllm.arguments import EngineArgs


def option_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    return {"options": _options}


def _options() -> str:
    rows = [
        (" / ".join(f"`{flag}`" for flag in flags.split("/")), value, default, text)
        for flags, value, default, text in reference_rows(EngineArgs)
    ]
    return table(("option", "value", "default", "what"), rows)
