"""The model, GPU and engine arguments that a question is about: the one place where they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from files.errors import HeadcountError
from kvcache.gpus.gpu import GPU
from kvcache.models.catalog import find_gpu, is_other_model, load_model
from kvcache.shape.architecture import Architecture
from simulator.engines.argument import Settings
from simulator.engines.engines import SGLANG, AnyArgs, argument_names, engine_args, own_arguments
from simulator.engines.memory import memory_budget
from simulator.engines.sglang.arguments import SGLangArgs

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

ENGINE_ARGUMENTS = argument_names()  # of every engine


@dataclass(frozen=True, kw_only=True)
class ModelOnGPU:
    """A model on a GPU with its engine arguments; without a tensor-parallel size every one that fits is meant."""

    architecture: Architecture
    gpu: GPU
    args: AnyArgs
    unused_arguments: tuple[str, ...] = ()
    """Of the start-up log, which may change the answer."""


def resolve_model_and_gpu(
    model: str,
    gpu: str,
    engine: Settings,
    startup_log: "StartupLog | None" = None,
    *,
    is_shared: bool = False,
) -> ModelOnGPU:
    """`engine` has the arguments of the engine that it names, vLLM's where it names none; what is None or absent has
    the engine's default, or what the log says. `is_shared`: arguments of other engines are for those.

    Raises HeadcountError for a model, a GPU or an argument that is not known, with the nearest that is.
    """
    given = own_arguments(engine, is_shared=is_shared)
    architecture, found = load_model(model), find_gpu(gpu)
    asked = {**given, "engine": engine.get("engine")}
    if startup_log is None:
        return ModelOnGPU(architecture=architecture, gpu=found, args=engine_args(asked))
    named = startup_log.options.get("model")
    if isinstance(named, str) and is_other_model(named, architecture):
        raise HeadcountError(
            f"--startup-log: {startup_log.path} is of a server of {named}, not of {architecture.name}; its KV blocks "
            "are not valid for another model: leave the log out, or ask about the log's model"
        )
    logged = {name: value for name, value in startup_log.options.items() if name in ENGINE_ARGUMENTS}
    if is_log_of_sglang := startup_log.options.get("engine") == SGLANG:
        asked["engine"] = SGLANG
    args = engine_args(logged | asked)
    is_checked = args.num_gpu_blocks_override is None or is_log_of_sglang
    if is_checked and args.tensor_parallel_size != startup_log.tensor_parallel_size:
        raise HeadcountError(
            f"--startup-log: {startup_log.path} is of a server with --tensor-parallel-size "
            f"{startup_log.tensor_parallel_size}, not {args.tensor_parallel_size}; its KV blocks are not valid for "
            "another size"
        )
    if args.num_gpu_blocks_override is None:
        layout = memory_budget(architecture, found, args).layout
        args = engine_args(logged | asked | {"num_gpu_blocks_override": startup_log.num_gpu_blocks(layout)})
    return ModelOnGPU(architecture=architecture, gpu=found, args=args, unused_arguments=startup_log.unused)


def check_counts(name: str, given: Sequence[int]) -> None:
    """Raise HeadcountError unless each is a whole number above 0."""
    wrong = next((each for each in given if each < 1), None)
    if wrong is not None:
        raise HeadcountError(f"{name} has {wrong!r}; give whole numbers above 0")


def engine_json(args: AnyArgs) -> dict[str, object]:
    """What an answer says of its engine beyond vLLM's release: nothing where it is vLLM."""
    return {"engine": SGLANG, "sglang_version": args.sglang_version} if isinstance(args, SGLangArgs) else {}
