"""Options read from a pasted `vllm serve` line."""

import re
from typing import Any

import click

from headcount.cli.option_names import spellings
from headcount.cli.pasted.line import read_flags, words_of
from simulator.engines.argument import arguments_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.environment import VARIABLE, WITHOUT_EFFECT

_OPTION = "--vllm-args"
# The module or the image of vLLM's server: what stands before it is python's or docker's.
_STARTS_SERVER = re.compile(r"^(vllm\.entrypoints\.openai\.api_server|(\S+/)?vllm/vllm-openai(-\w+)?([:@]\S+)?)$")
_RELEASED_IMAGE = re.compile(r"vllm/vllm-openai(?:-\w+)?:v?(\d+\.\d+(?:\.\d+)?)(?![\w.-])")  # the tag is the release


def read_vllm_args(text: str, ctx: click.Context) -> dict[str, Any]:
    """Option values by parameter name, from vLLM's flags with or without `vllm serve MODEL` before them.

    Raises ValueError naming every flag that is not modelled, or the first value that its option would refuse.
    """
    arguments = arguments_of(EngineArgs)
    known = {"model", *(name for name, described in arguments.items() if described.is_engine_s)}
    names = {name: found for name, found in spellings(ctx.command.params).items() if found.key in known}
    variables, words = _variables_and_words(text)
    found: dict[str, Any] = {"environment": variables} if variables else {}
    image = _RELEASED_IMAGE.search(text)
    if image is not None:
        found["vllm_version"] = image[1]
    if words and not words[0].startswith("-"):
        found["model"] = words.pop(0)
    return found | read_flags(words, ctx, _OPTION, names, WITHOUT_EFFECT)


def _variables_and_words(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables in front of the server's command, and the words behind it."""
    words = words_of(text, _OPTION)
    starts = [place for place, word in enumerate(words) if _STARTS_SERVER.match(word)]
    first = next((place for place, word in enumerate(words) if not VARIABLE.match(word)), len(words))
    head = words[: starts[0] if starts else first]  # docker's own words hold variables behind -e
    words = words[starts[0] + 1 :] if starts else words[first:]
    if words[:2] == ["vllm", "serve"]:
        words = words[2:]
    if not words:
        raise ValueError("--vllm-args is empty; paste a 'vllm serve MODEL --flag value …' line, or leave it out")
    found = [word.removeprefix("--env=") for word in head]
    return tuple(word for word in found if VARIABLE.match(word)), words
