"""What an SGLang server logged when it started: its arguments, its memory, its KV tokens."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from calibrate.readers.parsing.log_text import log_pattern
from files.documents import Json
from files.names import printable, shortened
from files.reading import InputError, shown
from files.schema import AtLeastOne, typed
from simulator.engines.argument import arguments_of
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.attention_groups import OLD_GROUPS, as_given
from simulator.engines.sglang.drafts import FLAGS, settings_of_fields

_STARTS = log_pattern(r"server_args= ServerArgs \(")
_POOL = log_pattern(r"max_total_num_tokens=([0-9]{1,15}),.{0,400}?context_len=([0-9]{1,12})")
_VALUE = r"(?<![a-z_]){}= ('[^'\n]{{0,500}}'|None|True|False|-?[0-9][0-9.e+-]{{0,20}})"
# Names of SGLang's fields that are not those of the arguments here.
_NAMES = {"tp_size": "tensor_parallel_size", "model_path": "model"}
_DRAFTS = {flag.replace("-", "_") for flag in FLAGS}
_NUMBER = r"([0-9]{1,6}(?:\.[0-9]{1,4})?)"
_MEMORY: dict[str, tuple[re.Pattern[str], Callable[[Iterable[float]], float]]] = {
    # Each rank logs its own; the fullest one decides.
    "weights": (log_pattern(rf"Load weight end\..{{0,300}}?mem usage={_NUMBER} GB"), max),
    "k": (log_pattern(rf"KV Cache is allocated\..{{0,200}}?K size: {_NUMBER} GB"), min),
    "v": (log_pattern(rf"KV Cache is allocated\..{{0,200}}?V size: {_NUMBER} GB"), min),
    "kv": (log_pattern(rf"KV Cache is allocated\..{{0,200}}?KV size: {_NUMBER} GB"), min),
}


# What is not simulated, by the field that asks for it, with the values that do not.
_NOT_SIMULATED: dict[str, tuple[str, tuple[Any, ...]]] = {
    "enable_hierarchical_cache": ("HiCache", (False,)),
    "disaggregation_mode": ("separate prefill and decode", ("null",)),
    "pp_size": ("pipeline parallelism", (1,)),
    "moe_a2a_backend": ("expert parallelism by this backend", ("none",)),
    "moe_dense_tp_size": ("attention data parallelism with other MLPs", (None,)),
    "enable_lora": ("LoRA", (False,)),
    "enable_priority_scheduling": ("priority scheduling", (False,)),
}


def check_simulated(found: Mapping[str, object], file: Path, place: str) -> None:
    """Raise InputError where a server's own fields ask for what is not simulated with SGLang."""
    for name, (what, without) in _NOT_SIMULATED.items():
        value = found.get(name)
        if value is not None and value not in without:
            given = shortened(printable(str(value)))
            raise InputError(
                f"{shown(file)}: {place}.{name} is {given}: {what} is not simulated with SGLang; give a file of a "
                "server without it"
            )


def is_sglang_log(text: str) -> bool:
    """Whether it is SGLang that logs there."""
    return _STARTS.search(text) is not None or _POOL.search(text) is not None


def read_pool(path: Path, text: str) -> tuple[int, int]:
    """KV tokens and the longest context. Raises InputError where the server did not come up."""
    found = _POOL.search(text)
    if found is None:
        raise InputError(
            f"{shown(path)}: 'max_total_num_tokens=' is missing; the log must hold a server's start up to its first "
            "request"
        )
    return typed(int(found[1]), AtLeastOne, path, name="max_total_num_tokens"), int(found[2])


def read_arguments(path: Path, text: str) -> Json:
    """The server's arguments by their names here, and its model, as far as SGLang logged them.

    Raises InputError for a value that SGLang would refuse.
    """
    begin = _STARTS.search(text)
    line = text[begin.end() :].split("\n", 1)[0] if begin is not None else ""
    fields = {name for name, described in arguments_of(SGLangArgs).items() if described.is_engine_s} | set(_NAMES)
    logged: Json = {}
    for name in (fields - set(_NAMES.values())) | set(_NOT_SIMULATED) | _DRAFTS | {OLD_GROUPS}:
        value = log_pattern(_VALUE.format(name)).search(line)
        if value is not None and value[1] != "None":
            logged[name] = ast.literal_eval(value[1])
    check_simulated(logged, path, "server_args")
    found = {_NAMES.get(name, name): logged[name] for name in logged.keys() - _NOT_SIMULATED.keys() - _DRAFTS}
    try:
        found = as_given(found) | settings_of_fields(logged)
        SGLangArgs(**{name: value for name, value in found.items() if name != "model"})
    except ValueError as error:
        raise InputError(f"{shown(path)}: server_args: {error}") from None
    return found


def read_memory(text: str) -> dict[str, float]:
    """GiB of each GPU by kind, as far as they are logged."""
    sizes = {
        name: choose(map(float, logged))
        for name, (pattern, choose) in _MEMORY.items()
        if (logged := pattern.findall(text))
    }
    kv = sizes["k"] + sizes["v"] if {"k", "v"} <= sizes.keys() else sizes.get("kv")
    known = {"weights": sizes.get("weights"), "available_kv": kv}
    return {name: size for name, size in known.items() if size is not None}
