"""Options read from a pasted `vllm serve` line, with vLLM's ways to write one compilation config."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import click

from files.documents import Json, parse_json
from files.errors import HeadcountError
from files.names import shortened
from headcount.cli.config_file import spellings
from headcount.cli.engine_command_parser.line import read_flags, variables_and_words
from simulator.engines.argument import arguments_of, flags_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.compilation import NONE, PIECEWISE
from simulator.engines.vllm.environment import WITHOUT_EFFECT

# -cc JSON, --compilation-config.KEY VALUE, -cc.KEY=VALUE; before 0.12 also -O JSON, -O.KEY=VALUE.
_CONFIG = re.compile(r"^(?:--compilation[-_]config|-cc|-O(?=\.))(?:\.([\w.]+))?(?:=(.*))?$", re.DOTALL)
_LEVEL = re.compile(r"^(?:-O|--optimization[-_]level)(?:=?(.+))?$", re.DOTALL)
_SWITCHES = {"true": True, "false": False}
_OF_LEVEL: dict[str, Json] = {  # vLLM config/vllm.py, OPTIMIZATION_LEVEL_00 to 03
    "0": {"cudagraph_mode": NONE, "pass_config": {"fuse_allreduce_rms": False}},
    "1": {"cudagraph_mode": PIECEWISE, "pass_config": {"fuse_allreduce_rms": False}},
    "2": {},
    "3": {},
}
_OPTION = "--vllm-args"
_STARTS_SERVER = re.compile(r"^(vllm\.entrypoints\.openai\.api_server|(\S+/)?vllm/vllm-openai(-\w+)?([:@]\S+)?)$")
_RELEASED_IMAGE = re.compile(r"vllm/vllm-openai(?:-\w+)?:v?(\d+\.\d+(?:\.\d+)?)(?![\w.-])")  # the tag is the release


def with_one_config(words: list[str], option: str) -> list[str]:
    """The words with every flag of the compilation as one `--compilation-config JSON`.

    Raises HeadcountError for a flag without a value, for another level than vLLM has, or for text that is no JSON.
    """
    kept: list[str] = []
    level: dict[str, object] = {}
    given: dict[str, object] = {}
    rest = iter(words)
    for word in rest:
        config, of_level = _CONFIG.match(word), _LEVEL.match(word)
        if config is not None:
            value = _value(option, word, config[2], rest)
            if config[1]:
                _put(given, config[1].split("."), _SWITCHES.get(value.lower(), value))
            else:
                _merge(given, _object(option, value))
        elif of_level is not None:
            value = _value(option, word, of_level[1], rest)
            if value.startswith("{"):
                _merge(given, _object(option, value))
            elif value in _OF_LEVEL:
                level = _OF_LEVEL[value]
            else:
                raise HeadcountError(
                    f"{option}: optimization level '{shortened(value)}'; vLLM has {', '.join(_OF_LEVEL)}"
                )
        else:
            kept.append(word)
    asked = deepcopy(level)
    _merge(asked, given)
    return [*kept, "--compilation-config", json.dumps(asked)] if asked else kept


def _value(option: str, word: str, joined: str | None, rest: Iterator[str]) -> str:
    value = joined if joined is not None else next(rest, None)
    if value is None:
        raise HeadcountError(f"{option}: {shortened(word)} takes one value; it was given none")
    return value


def _object(option: str, text: str) -> dict[str, object]:
    found = parse_json(text, f"{option}: --compilation-config")
    if not isinstance(found, dict):
        raise HeadcountError(f"{option}: --compilation-config is '{shortened(text)}'; give a JSON object")
    return found


def _put(config: Json, path: list[str], value: Any) -> None:
    for key in reversed(path):
        value = {key: value}
    _merge(config, value)


def _merge(config: Json, more: dict[str, object]) -> None:
    """`more` wins."""
    for key, value in more.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            _merge(config[key], value)
        else:
            config[key] = value


# The module or the image of vLLM's server: what stands before it is python's or docker's.


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
    elsewhere = {flag.lstrip("-") for name in known - here - {"model"} for flag in flags_of(name, arguments[name])}
    return found | read_flags(with_one_config(words, _OPTION), ctx, _OPTION, names, WITHOUT_EFFECT | elsewhere)
