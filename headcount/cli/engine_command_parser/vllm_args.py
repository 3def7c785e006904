"""Options read from a pasted `vllm serve` line."""

import re

import click

from headcount.cli.engine_command_parser.compilation import with_one_config
from headcount.cli.engine_command_parser.line import read_flags, variables_and_words
from headcount.cli.option_names import spellings
from simulator.engines.argument import Argument, arguments_of, flags_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.environment import WITHOUT_EFFECT

_OPTION = "--vllm-args"
# The module or the image of vLLM's server: what stands before it is python's or docker's.
_STARTS_SERVER = re.compile(r"^(vllm\.entrypoints\.openai\.api_server|(\S+/)?vllm/vllm-openai(-\w+)?([:@]\S+)?)$")
_RELEASED_IMAGE = re.compile(r"vllm/vllm-openai(?:-\w+)?:v?(\d+\.\d+(?:\.\d+)?)(?![\w.-])")  # the tag is the release


def read_vllm_args(text: str, ctx: click.Context) -> dict[str, object]:
    """Option values by parameter name, from vLLM's flags with or without `vllm serve MODEL` before them.

    vLLM's arguments that decide nothing of what this command answers are passed over. Raises ValueError naming every
    flag that is not modelled, or the first value that its option would refuse.
    """
    arguments = arguments_of(EngineArgs)
    known = {"model", *(name for name, described in arguments.items() if described.is_engine_s)}
    names = {name: found for name, found in spellings(ctx.command.params).items() if found.key in known}
    variables, words = variables_and_words(text, _OPTION, _STARTS_SERVER, ["vllm", "serve"], "vllm serve MODEL")
    found: dict[str, object] = {"environment": variables} if variables else {}
    image = _RELEASED_IMAGE.search(text)
    if image is not None:
        found["vllm_version"] = image[1]
    if words and not words[0].startswith("-"):
        found["model"] = words.pop(0)
    here = {spelling.key for spelling in names.values()}
    elsewhere = {flag for name in known - here - {"model"} for flag in _flags(name, arguments[name])}
    return found | read_flags(with_one_config(words, _OPTION), ctx, _OPTION, names, WITHOUT_EFFECT | elsewhere)


def _flags(name: str, described: Argument) -> set[str]:
    return {flag.lstrip("-") for flag in flags_of(name, described)}
