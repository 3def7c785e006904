"""Options read from a pasted `vllm serve` line, with vLLM's ways to write one compilation config."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy
from itertools import pairwise
from typing import Final

import click

from files.documents import Json
from files.errors import HeadcountError
from files.names import shortened
from headcount.cli.config_file import spellings
from headcount.cli.engine_command_parser.config_lines import as_command_line
from headcount.cli.engine_command_parser.context_length import overridden_length
from headcount.cli.engine_command_parser.line import read_flags
from headcount.cli.engine_command_parser.nested import json_object, merge, take_objects
from headcount.cli.engine_command_parser.served_model import with_known_model
from headcount.cli.engine_command_parser.servers import VLLM_SERVER
from headcount.cli.engine_command_parser.words import variables_and_words
from simulator.engines.argument import arguments_of, flags_of
from simulator.engines.engines import VLLM
from simulator.engines.flags import inverse_of
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.compilation import NONE, PIECEWISE
from simulator.engines.vllm.dynamo_images import VLLM_OF

_OPTION = "--vllm-args"
_RELEASED_IMAGE = re.compile(  # the tag is the release; in a chart's values it stands alone
    r"""vllm/vllm-openai(?:-\w+)?(?::|["']?\s+tag:\s*["']?)v?(\d+\.\d+(?:\.\d+)?)(?![\w.-])"""
)
_DYNAMO_IMAGE = re.compile(r"ai-dynamo/vllm-runtime:(\d+\.\d+\.\d+)(?![\w.-])")
_COMPILATION, _SPECULATION, _LIMITS = "compilation-config", "speculative-config", "limit-mm-per-prompt"
_OVERRIDES, _ROPE = "hf-overrides", "rope-scaling"
_OBJECTS: Final = {
    _COMPILATION: _COMPILATION,
    "cc": _COMPILATION,
    "O": _COMPILATION,  # -O.KEY=VALUE, before 0.12
    _SPECULATION: _SPECULATION,
    "sc": _SPECULATION,
    "spec-method": f"{_SPECULATION}.method",
    "spec-model": f"{_SPECULATION}.model",
    "spec-tokens": f"{_SPECULATION}.num_speculative_tokens",
    "kv-transfer-config": "kv-transfer-config",
    _OVERRIDES: _OVERRIDES,
    _ROPE: f"{_OVERRIDES}.rope_scaling",
    "rope-theta": f"{_OVERRIDES}.rope_theta",
}
_LEVEL = re.compile(r"^(?:-O|--optimization[-_]level)(?:=?(.+))?$", re.DOTALL)
_LEVEL_AS_CONFIG = re.compile(r"^--compilation[-_]config(?:=([0-3]))?$")  # before 0.12, a level could stand for it
_OF_LEVEL: dict[str, Json] = {  # vLLM config/vllm.py, OPTIMIZATION_LEVEL_00 to 03
    "0": {"cudagraph_mode": NONE, "pass_config": {"fuse_allreduce_rms": False}},
    "1": {"cudagraph_mode": PIECEWISE, "pass_config": {"fuse_allreduce_rms": False}},
    "2": {},
    "3": {},
}
_LONGEST = ("auto", "-1")  # of max-model-len: as long as the model allows and memory holds


def read_vllm_args(text: str, ctx: click.Context) -> dict[str, object]:
    """Option values by parameter name, from vLLM's flags with or without `vllm serve MODEL` before them.

    The line may be a shell's, docker's, of a compose file or of a Kubernetes manifest. Raises HeadcountError naming
    every flag that changes the answer and is not modelled, or the first value that its option would refuse.
    """
    arguments = arguments_of(EngineArgs)
    known = {"model", *(name for name, described in arguments.items() if described.is_engine_s)}
    names = {name: found for name, found in spellings(ctx.command.params).items() if found.key in known}
    by_key = {found.key: found for found in names.values() if not found.turns_off}
    for name, described in arguments.items():
        names |= {alias: by_key[name] for alias in described.aliases if name in by_key}
    paired = {name: inverse_of(name) for name in names if inverse_of(name) != name and f"no-{name}" in names}
    names |= {other: names[f"no-{name}"] for name, other in paired.items()}
    names |= {f"no-{other}": names[name] for name, other in paired.items()}
    elsewhere = {
        flag.lstrip("-") for name in known - by_key.keys() - {"model"} for flag in flags_of(name, arguments[name])
    }
    line = as_command_line(text, VLLM, {*names, *elsewhere, *_OBJECTS})
    variables, words = variables_and_words(line, _OPTION, VLLM_SERVER)
    found: dict[str, object] = {"environment": variables} if variables else {}
    image, dynamo = _RELEASED_IMAGE.search(text), _DYNAMO_IMAGE.search(text)
    if image is not None:
        found["vllm_version"] = image[1]
    elif dynamo is not None and dynamo[1] in VLLM_OF:
        found["vllm_version"] = VLLM_OF[dynamo[1]]
    if not words[0].startswith("-"):
        found["model"] = words.pop(0)
    words, count = _without_adapters(words)
    if count:
        found["adapters"] = count
    words, objects = _objects(words)
    length = overridden_length(objects.pop(_OVERRIDES, {}), _OPTION, f"--{_OVERRIDES}")
    if length is not None and "max_model_len" in by_key:
        found["max_model_len"] = length
    for name, value in objects.items():
        words += [f"--{name}", json.dumps(value)]
    found |= read_flags(_without_longest(words), ctx, _OPTION, names, engine=VLLM, elsewhere=elsewhere)
    return with_known_model(found, _OPTION)


def _without_adapters(words: list[str]) -> tuple[list[str], int]:
    """Without the adapters that --lora-modules names, each as NAME=PATH or as an object, and how many these are."""
    kept: list[str] = []
    count, is_named = 0, False
    for word in words:
        if word.startswith("-"):
            flag, is_joined, _ = word.lstrip("-").replace("_", "-").partition("=")
            is_named = flag == "lora-modules"
            count += is_named and bool(is_joined)
        elif is_named:
            count += 1
        if not is_named:
            kept.append(word)
    return kept, count


def _objects(words: list[str]) -> tuple[list[str], dict[str, Json]]:
    """The words without those of objects, and the objects; an optimization level is one of the compilation.

    Raises HeadcountError for another level than vLLM has.
    """
    kept, found = take_objects(list(_with_levels(words)), _OPTION, _OBJECTS)
    kept, limits = _limits(kept)
    found |= limits
    level: Json = {}
    rest = iter(kept)
    words = []
    for word in rest:
        match = _LEVEL.match(word)
        if match is None:
            words.append(word)
            continue
        value = _level_value(word, match[1], rest)
        if value.startswith("{"):
            merge(found.setdefault(_COMPILATION, {}), json_object(_OPTION, _COMPILATION, value))
        elif value in _OF_LEVEL:
            level = deepcopy(_OF_LEVEL[value])
        else:
            raise HeadcountError(f"{_OPTION}: optimization level '{shortened(value)}'; vLLM has {', '.join(_OF_LEVEL)}")
    if level:
        merge(level, found.get(_COMPILATION, {}))
        found[_COMPILATION] = level
    return words, found


def _with_levels(words: list[str]) -> Iterator[str]:
    """`--compilation-config 3` as `-O3`."""
    rest = iter(words)
    for word in rest:
        match = _LEVEL_AS_CONFIG.match(word)
        value = match and (match[1] or next(rest, None))
        if match is None or value is None:
            yield word
        elif value in _OF_LEVEL:
            yield f"-O{value}"
        else:
            yield from (word, value)


def _limits(words: list[str]) -> tuple[list[str], dict[str, Json]]:
    """Limits per prompt that are given modality by modality; whole ones stay as they are, since not all are JSON."""
    if not any(_LIMITS in word.replace("_", "-") and "." in word.partition("=")[0] for word in words):
        return words, {}
    return take_objects(words, _OPTION, {_LIMITS: _LIMITS})


def _level_value(word: str, joined: str | None, rest: Iterator[str]) -> str:
    value = joined if joined is not None else next(rest, None)
    if value is None:
        raise HeadcountError(f"{_OPTION}: {shortened(word)} takes one value; it was given none")
    return value


def _without_longest(words: list[str]) -> list[str]:
    """Without a length that is left to vLLM: it is the model's, or the answer says which one memory holds."""
    plain = [word.lstrip("-").replace("_", "-") if word.startswith("-") else word for word in words]
    joined = {f"max-model-len={value}" for value in _LONGEST}
    dropped = {place for place, word in enumerate(plain) if word in joined}
    for place, (_, value) in enumerate(pairwise(words)):
        if plain[place] == "max-model-len" and value in _LONGEST:
            dropped |= {place, place + 1}
    return [word for place, word in enumerate(words) if place not in dropped]
