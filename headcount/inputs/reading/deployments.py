"""The model, GPU and engine arguments that a question is about: the one place where they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from files.errors import HeadcountError
from headcount.text.units import GIB
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget
from kvcache.models.catalog import find_gpu, is_other_model, load_model
from kvcache.shape.architecture import Architecture
from simulator.engines.argument import Settings
from simulator.engines.engines import SGLANG, AnyArgs, argument_names, engine_args, own_arguments
from simulator.engines.memory import memory_budget
from simulator.engines.sglang.arguments import SGLangArgs

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog

ENGINE_ARGUMENTS = argument_names()  # of every engine
WEIGHTS_ERROR = 0.15  # of logged weights, for the same model in the same format


@dataclass(frozen=True, kw_only=True)
class ModelOnGPU:
    """A model on a GPU with its engine arguments; without a tensor-parallel size every one that fits is meant."""

    architecture: Architecture
    gpu: GPU
    args: AnyArgs
    unused_arguments: tuple[str, ...] = ()
    """Of the start-up log, which may change the answer."""
    missing_in_log: tuple[str, ...] = ()
    log_contradictions: tuple[str, ...] = ()
    """What the start-up log says, and what it or the model asked about says instead."""


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
    if is_checked and not startup_log.may_be_of_size(args.tensor_parallel_size):
        raise HeadcountError(
            f"--startup-log: {startup_log.path} is of a server with --tensor-parallel-size "
            f"{startup_log.tensor_parallel_size}, not {args.tensor_parallel_size}; its KV blocks are not valid for "
            "another size"
        )
    budget = memory_budget(architecture, found, args)
    if args.num_gpu_blocks_override is None:
        blocks = {"num_gpu_blocks_override": startup_log.num_gpu_blocks(budget.layout)}
        args = engine_args(logged | asked | blocks)
    return ModelOnGPU(
        architecture=architecture,
        gpu=found,
        args=args,
        unused_arguments=startup_log.unused,
        missing_in_log=startup_log.missing,
        log_contradictions=(*startup_log.contradictions, *_weights_contradiction(startup_log, budget)),
    )


def _weights_contradiction(log: "StartupLog", budget: MemoryBudget) -> tuple[str, ...]:
    logged_gib, modelled_gib = log.memory_gib.get("weights"), budget.weights_bytes / GIB
    if not logged_gib or abs(modelled_gib / logged_gib - 1) <= WEIGHTS_ERROR:
        return ()
    return (
        f"its weights take {logged_gib:,.2f} GiB per GPU, and those of {budget.model} in {budget.weights_format} on "
        f"{budget.num_gpus} GPU{'s' * (budget.num_gpus > 1)} {modelled_gib:,.2f} GiB; check --model, "
        "--tensor-parallel-size and --quantization",
    )


def check_counts(name: str, given: Sequence[int]) -> None:
    """Raise HeadcountError unless each is a whole number above 0."""
    wrong = next((each for each in given if each < 1), None)
    if wrong is not None:
        raise HeadcountError(f"{name} has {wrong!r}; give whole numbers above 0")


def engine_json(args: AnyArgs) -> dict[str, object]:
    """What an answer says of its engine beyond vLLM's release: nothing where it is vLLM."""
    return {"engine": SGLANG, "sglang_version": args.sglang_version} if isinstance(args, SGLangArgs) else {}
