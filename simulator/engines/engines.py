"""The engines that can be asked for, and which arguments are whose."""

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Final

from files.errors import HeadcountError
from files.names import check_names
from simulator.engines.argument import Settings, arguments_of, flag_of
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.tuning import TUNING as SGLANG_TUNING
from simulator.engines.tuning import Tuning, Words
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.tuning import TUNING as VLLM_TUNING

VLLM: Final = "vllm"
SGLANG: Final = "sglang"
AnyArgs = EngineArgs | SGLangArgs
ENGINES: Final[Mapping[str, type[AnyArgs]]] = {VLLM: EngineArgs, SGLANG: SGLangArgs}
TITLES: Final[Mapping[str, str]] = {VLLM: "vLLM", SGLANG: "SGLang"}
TUNINGS: Final[Mapping[str, Tuning]] = {VLLM: VLLM_TUNING, SGLANG: SGLANG_TUNING}
# What means about the same under the other engine's name.
_COUNTERPARTS: Final = (
    ("max_model_len", "context_length"),
    ("max_num_seqs", "max_running_requests"),
    ("max_num_batched_tokens", "chunked_prefill_size"),
    ("gpu_memory_utilization", "mem_fraction_static"),
    ("block_size", "page_size"),
    ("num_gpu_blocks_override", "max_total_num_tokens"),
    ("enforce_eager", "disable_cuda_graph"),
    ("enable_prefix_caching", "disable_radix_cache"),
    ("async_scheduling", "disable_overlap_schedule"),
    ("scheduling_policy", "schedule_policy"),
    ("vllm_version", "sglang_version"),
    ("data_parallel_size", "dp_size"),
)


def argument_names() -> frozenset[str]:
    """Of every engine, and `engine` itself."""
    return frozenset({"engine", *(item.name for kind in ENGINES.values() for item in fields(kind))})


def own_names() -> dict[str, str]:
    """The engines' names of arguments that are called otherwise here, such as `speculative_config`, with ours."""
    return {
        flag_of(name, described).replace("-", "_"): name
        for kind in ENGINES.values()
        for name, described in arguments_of(kind).items()
        if described.is_engine_s and described.flag
    }


def under_our_names(given: Settings) -> dict[str, Any]:
    """Arguments by name, each under the one that it has here. Raises HeadcountError for one that is given twice."""
    names = own_names()
    twice = next((name for name in given if names.get(name) in given), None)
    if twice is not None:
        raise HeadcountError(f"{twice} and {names[twice]} are the same argument; give one of them")
    return {names.get(name, name): value for name, value in given.items()}


def engine_of(args: AnyArgs) -> str:
    """The name of the engine whose arguments they are."""
    return SGLANG if isinstance(args, SGLangArgs) else VLLM


def words_of(args: AnyArgs) -> Words:
    """What limits a load, in the names of the engine whose arguments they are; all of them have a value."""
    return TUNINGS[engine_of(args)].words(args)


def own_arguments(given: Mapping[str, object], *, is_shared: bool = False) -> dict[str, Any]:
    """What is given for the engine that is asked for, without `engine`; what has no value is left out.

    `is_shared`: other engines are asked for, too, and their arguments are for them. Raises ValueError for an unknown
    name, or for another engine's argument at another value than its default.
    """
    given = under_our_names(given)
    check_names(given, argument_names(), "engine argument")
    name = _engine_name(given)
    check_names([name], ENGINES, "engine")
    own = {item.name for item in fields(ENGINES[name])}
    values = {key: value for key, value in given.items() if value is not None and key != "engine"}
    foreign = [key for key in values if key not in own]
    asked = [key for key in foreign if not is_shared and not _is_default(key, values[key])]
    if asked:
        raise HeadcountError(_not_of(name, asked[0]))
    return {key: value for key, value in values.items() if key in own}


def engine_args(given: Settings, *, is_shared: bool = False) -> AnyArgs:
    """The arguments of the engine that is asked for by `engine`; see `own_arguments`."""
    own = own_arguments(given, is_shared=is_shared)
    return ENGINES[_engine_name(given)](**own)


def _engine_name(given: Settings) -> str:
    name = given.get("engine")
    return VLLM if name is None else name


def with_settings(args: AnyArgs | None, settings: Settings) -> AnyArgs:
    """Arguments, some of them given by name; None of both stands for vLLM's own."""
    if args is None:
        return engine_args(settings)
    settings = under_our_names(settings)
    check_names(settings, {item.name for item in fields(args)}, "engine argument")
    return replace(args, **settings)


def _is_default(key: str, value: object) -> bool:
    """Whether an argument has its default, as a command passes it on for every engine that is not asked for."""
    described = next(found[key] for kind in ENGINES.values() if key in (found := arguments_of(kind)))
    return bool(value == described.default)


def _not_of(engine: str, key: str) -> str:
    """Why an argument is refused, and which one the engine has."""
    owner = next(name for name, kind in ENGINES.items() if key in arguments_of(kind))
    flag = flag_of(key, arguments_of(ENGINES[owner])[key])
    pairs = dict(_COUNTERPARTS) if owner == VLLM else {theirs: ours for ours, theirs in _COUNTERPARTS}
    said = f"--{flag} is an argument of {TITLES[owner]}"
    if key in pairs:
        instead = flag_of(pairs[key], arguments_of(ENGINES[engine])[pairs[key]])
        return f"{said}; {TITLES[engine]} has --{instead}"
    if owner == VLLM:
        return f"{said}, and with SGLang it is not simulated; leave it out, or ask about vLLM without --engine sglang"
    return f"{said}; leave it out, or give --engine sglang"
