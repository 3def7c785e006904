"""The model, GPU and engine arguments that a question is about: the one place where they are read."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from files.errors import HeadcountError
from files.names import check_names
from kvcache.gpus.gpu import GPU
from kvcache.models.catalog import find_gpu, is_other_model, load_model
from kvcache.shape.architecture import Architecture
from simulator.engines.argument import Settings
from simulator.engines.engines import SGLANG, AnyArgs, argument_names, engine_args, engine_of, own_arguments
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
    _check_model(startup_log, architecture)
    logged = {name: value for name, value in startup_log.options.items() if name in ENGINE_ARGUMENTS}
    if is_log_of_sglang := startup_log.options.get("engine") == SGLANG:
        asked["engine"] = SGLANG
    args = engine_args(logged | asked)
    if args.num_gpu_blocks_override is None or is_log_of_sglang:
        _check_size(startup_log, args)
    if args.num_gpu_blocks_override is None:
        layout = memory_budget(architecture, found, args).layout
        args = engine_args(logged | asked | {"num_gpu_blocks_override": startup_log.num_gpu_blocks(layout)})
    return ModelOnGPU(architecture=architecture, gpu=found, args=args, unused_arguments=startup_log.unused)


def _known(given: Mapping[str, object], known: Collection[str], what: str) -> dict[str, Any]:
    """What is given, less what is None. Raises ValueError for a name that is not known, with the nearest that is."""
    check_names(given, known, what)
    return {name: value for name, value in given.items() if value is not None}


def _check_model(log: "StartupLog", asked: Architecture) -> None:
    """Raise HeadcountError where the log names another model."""
    named = log.options.get("model")
    if isinstance(named, str) and is_other_model(named, asked):
        raise HeadcountError(
            f"--startup-log: {log.path} is of a server of {named}, not of {asked.name}; its KV blocks are not "
            "valid for another model: leave the log out, or ask about the log's model"
        )


def _check_size(log: "StartupLog", args: AnyArgs) -> None:
    """Raise HeadcountError where another tensor-parallel size is asked for than the log's."""
    if args.tensor_parallel_size != log.tensor_parallel_size:
        raise HeadcountError(
            f"--startup-log: {log.path} is of a server with --tensor-parallel-size {log.tensor_parallel_size}, "
            f"not {args.tensor_parallel_size}; its KV blocks are not valid for another size"
        )


def check_counts(name: str, given: Sequence[int]) -> None:
    """Raise HeadcountError unless each is a whole number above 0."""
    wrong = next((each for each in given if each < 1), None)
    if wrong is not None:
        raise HeadcountError(f"{name} has {wrong!r}; give whole numbers above 0")


def given_arguments(given: Settings, startup_log: "StartupLog | None" = None) -> dict[str, Any]:
    """What wins over what measured runs say of their server: model, GPU, engine arguments, the load's length spread,
    the warm-up.

    Raises HeadcountError for an argument that is not known, with the nearest that is.
    """
    found = _known(given, ENGINE_ARGUMENTS | {"model", "gpu", "length_spread", "warmup_s"}, "argument")
    spread = found.get("length_spread", 1)
    if not 0 < spread <= 1:
        raise HeadcountError(f"--length-spread is {spread:g}; it must be above 0, at most 1 (1 = exact lengths)")
    if not 0 <= found.get("warmup_s", 0) < math.inf:
        raise HeadcountError(f"--warmup is {found['warmup_s']:g} s; it must be 0 s or longer")
    if startup_log is not None:
        for name in ("model", "gpu"):
            if name not in found:
                raise HeadcountError(f"--startup-log needs --{name}, which its KV cache is checked against; give both")
        engine = {name: value for name, value in found.items() if name in ENGINE_ARGUMENTS}
        asked = resolve_model_and_gpu(found["model"], found["gpu"], engine, startup_log)
        found["engine"] = engine_of(asked.args)
        own = {"num_gpu_blocks_override", "max_total_num_tokens"} & {item.name for item in fields(asked.args)}
        found |= {name: getattr(asked.args, name) for name in own}
    return found


def engine_json(args: AnyArgs) -> dict[str, object]:
    """What an answer says of its engine beyond vLLM's release: nothing where it is vLLM."""
    return {"engine": SGLANG, "sglang_version": args.sglang_version} if isinstance(args, SGLangArgs) else {}
