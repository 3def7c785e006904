"""Options read from a pasted `vllm serve` line."""

import re
import shlex
from typing import Any

import click

from boundary.names import nearest_hint, shortened
from headcount.cli.option_names import Spelling, converted, spellings
from simulator.engines.argument import arguments_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.environment import VARIABLE, WITHOUT_EFFECT

# The module or the image of vLLM's server: what stands before it is python's or docker's.
_STARTS_SERVER = re.compile(r"^(vllm\.entrypoints\.openai\.api_server|(\S+/)?vllm/vllm-openai(-\w+)?([:@]\S+)?)$")
_RELEASED_IMAGE = re.compile(r"vllm/vllm-openai(?:-\w+)?:v?(\d+\.\d+(?:\.\d+)?)(?![\w.-])")  # the tag is the release


def read_vllm_args(text: str, ctx: click.Context) -> dict[str, Any]:
    """Option values by parameter name, from vLLM's flags with or without `vllm serve MODEL` before them.

    Flags are written as vLLM takes them: with - or _, with a blank or = before the value. Raises ValueError naming
    every flag that is not modelled, or the first value that its option would refuse.
    """
    arguments = arguments_of(EngineArgs)
    known = {"model", *(name for name, described in arguments.items() if described.is_engine_s)}
    names = {name: found for name, found in spellings(ctx.command.params).items() if found.key in known}
    variables, words = _variables_and_words(text)
    found: dict[str, Any] = {"environment": variables} if variables else {}
    image = _RELEASED_IMAGE.search(text)
    if image is not None:
        found["vllm_version"] = image[1]
    unknown: list[str] = []
    if words and not words[0].startswith("-"):
        found["model"] = words.pop(0)
    while words:
        flag, is_joined, value = words.pop(0).partition("=")
        values = [value] if is_joined else []
        while not is_joined and words and not _is_flag(words[0]):
            values.append(words.pop(0))
        name = flag.lstrip("-").replace("_", "-")
        if name in WITHOUT_EFFECT:
            continue
        if not _is_flag(flag) or name not in names:
            unknown.append(flag)
        else:
            found[names[name].key] = _value(ctx, flag, names[name], values)
    if unknown:
        hint = "; " + nearest_hint(unknown[0].lstrip("-"), names) if len(unknown) == 1 else ""
        given = ", ".join(shortened(flag) for flag in unknown)
        raise ValueError(f"--vllm-args: {given}: not modelled; leave it out{hint}")
    return found


def _variables_and_words(text: str) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables in front of the server's command, and the words behind it."""
    try:
        words = shlex.split(text.replace("\\\n", " "))
    except ValueError:
        raise ValueError(f"--vllm-args: a quote is left open in '{shortened(text)}'; close it") from None
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


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _value(ctx: click.Context, flag: str, spelling: Spelling, values: list[str]) -> Any:
    if spelling.option.is_flag:
        if values:
            raise ValueError(f"--vllm-args: {flag} takes no value; it was given '{shortened(values[0])}'")
        return not spelling.turns_off
    if len(values) != 1:
        given = f"was given '{shortened(' '.join(values))}'" if values else "was given none"
        raise ValueError(f"--vllm-args: {flag} takes one value; it {given}")
    try:
        return converted(ctx, spelling, values[0])
    except ValueError as error:
        raise ValueError(f"--vllm-args: {flag}: {error}") from None
