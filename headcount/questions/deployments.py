"""The model, GPU and engine arguments that a question is about: the one place where they are read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from boundary.names import nearest_hint
from kvcache.formats.kv_cache_dtype import kv_cache_dtype_of
from kvcache.gpus.gpu import GPU
from kvcache.layout.kv_layout import kv_layout
from kvcache.models.catalog import find_gpu, load_model
from kvcache.shape.architecture import Architecture, with_dtype
from simulator.engines.vllm.arguments import EngineArgs

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

ENGINE_ARGUMENTS = frozenset(field.name for field in fields(EngineArgs))


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model on a GPU with its engine arguments; without a tensor-parallel size every one that fits is meant."""

    architecture: Architecture
    gpu: GPU
    args: EngineArgs


def subject(model: str, gpu: str, engine: Mapping[str, Any], startup_log: "StartupLog | None" = None) -> Subject:
    """`engine` has vLLM's argument names; what is None or absent has vLLM's default, or what the log says.

    Raises ValueError for a model, a GPU or an argument that is not known, with the nearest that is.
    """
    unknown = next((name for name in engine if name not in ENGINE_ARGUMENTS), None)
    if unknown is not None:
        raise ValueError(f"no engine argument '{unknown}'; {nearest_hint(unknown, ENGINE_ARGUMENTS)}")
    given = {name: value for name, value in engine.items() if value is not None}
    architecture, found = load_model(model), find_gpu(gpu)
    if startup_log is not None:
        logged = {name: value for name, value in startup_log.options.items() if name in ENGINE_ARGUMENTS}
        given = logged | given
        if "num_gpu_blocks_override" not in given:
            given["num_gpu_blocks_override"] = _logged_blocks(startup_log, architecture, found, given)
    return Subject(architecture=architecture, gpu=found, args=EngineArgs(**given))


def check_counts(name: str, given: Sequence[int]) -> None:
    """Raise ValueError unless each is a whole number above 0."""
    wrong = next((each for each in given if each < 1), None)
    if wrong is not None:
        raise ValueError(f"{name} has {wrong!r}; give whole numbers above 0")


def given_arguments(given: Mapping[str, Any], startup_log: "StartupLog | None" = None) -> dict[str, Any]:
    """What wins over what measured runs say of their server: model, GPU, engine arguments, the load's length spread.

    Raises ValueError for an argument that is not known, with the nearest that is.
    """
    known = ENGINE_ARGUMENTS | {"model", "gpu", "length_spread"}
    found = {name: value for name, value in given.items() if value is not None}
    unknown = next((name for name in found if name not in known), None)
    if unknown is not None:
        raise ValueError(f"no argument '{unknown}'; {nearest_hint(unknown, known)}")
    spread = found.get("length_spread", 1)
    if not 0 < spread <= 1:
        raise ValueError(f"--length-spread is {spread:g}; it must be above 0, at most 1 (1 = exact lengths)")
    if startup_log is not None:
        engine = {name: value for name, value in found.items() if name in ENGINE_ARGUMENTS}
        asked = subject(found["model"], found["gpu"], engine, startup_log)
        found["num_gpu_blocks_override"] = asked.args.num_gpu_blocks_override
    return found


def _logged_blocks(log: "StartupLog", architecture: Architecture, gpu: GPU, given: Mapping[str, Any]) -> int:
    """The KV blocks of a server's start-up log. Raises ValueError where another tensor-parallel size is asked for."""
    size = given.get("tensor_parallel_size", 1)
    if size != log.tensor_parallel_size:
        raise ValueError(
            f"--startup-log: {log.path} is of a server with --tensor-parallel-size {log.tensor_parallel_size}, "
            f"not {size}; its KV blocks say nothing of another"
        )
    architecture = with_dtype(architecture, given.get("dtype", "auto"))
    kv_cache_dtype = kv_cache_dtype_of(
        architecture,
        given.get("kv_cache_dtype", "auto"),
        quantization=given.get("quantization"),
        vllm_version=given["vllm_version"],
    )
    layout = kv_layout(
        architecture,
        tensor_parallel_size=size,
        kv_cache_dtype=kv_cache_dtype,
        block_size=given.get("block_size"),
        gpu=gpu,
    )
    return log.num_gpu_blocks(layout)
