"""A server's settings as other programs wrote them down, checked by what the engine's arguments take."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from files.reading import InputError, shown
from files.schema import AtLeastOne, Count, typed
from files.schema import Number as Finite
from simulator.engines.argument import arguments_of
from simulator.engines.sglang.arguments import ChunkSize, SGLangArgs
from simulator.engines.values import Number, Switch, Text, TokenCount, WholeNumber
from simulator.engines.vllm.arguments import EngineArgs

# Engine arguments that decide memory or scheduling, by the option of the same name here.
OPTIONS = (
    "tensor_parallel_size", "pipeline_parallel_size", "decode_context_parallel_size", "data_parallel_size",
    "enable_expert_parallel",
    "dtype", "quantization", "kv_cache_dtype", "max_model_len",
    "max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "block_size", "enforce_eager",
    "enable_prefix_caching", "async_scheduling", "scheduling_policy", "long_prefill_token_threshold",
    "enable_chunked_prefill", "num_gpu_blocks_override",
)  # fmt: skip
_NAME = Annotated[str, Meta(min_length=1, max_length=300, description="text")]
_TYPES: dict[type, Any] = {
    Number: Finite,
    Switch: bool,
    Text: _NAME,
    TokenCount: AtLeastOne,
    WholeNumber: Count,
    ChunkSize: int,
}
_ARGUMENTS = arguments_of(SGLangArgs) | arguments_of(EngineArgs)
_NAMES = {"model", "gpu"}
_RECORDED = {*OPTIONS, *_NAMES, "vllm_version"}


def engine_option(name: str, given: object, file: Path | str, place: str) -> Any:
    """The setting of that name, or the model, from a value or the text of one; None where the tool wrote None.

    Raises InputError where it is not of the argument's type, or one that the engine refuses.
    """
    value = python_value(given) if isinstance(given, str) else given
    kind = Text if name in _NAMES else type(_ARGUMENTS[name].kind)
    if value is None:
        return None
    found = typed(given if kind is Text else value, _TYPES[kind], file, place)
    if name in _ARGUMENTS:
        try:
            (EngineArgs if name in arguments_of(EngineArgs) else SGLangArgs)(**{name: found})
        except ValueError as error:
            raise InputError(f"{shown(file)}: {place}: {error}") from None
    return found


def engine_options(found: Mapping[str, object], file: Path | str, place: str) -> dict[str, object]:
    """What a recording says of its engine; what is no setting of an engine, such as code to run, is not taken over."""
    return {
        name: engine_option(name, value, file, f"{place}.{name}") for name, value in found.items() if name in _RECORDED
    }


def python_value(text: str) -> Any:
    """A value as vLLM's Python had it, from the text that a label or an option holds."""
    known = {"True": True, "False": False, "None": None}
    if text in known:
        return known[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
