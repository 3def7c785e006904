"""What an engine takes of a GPU's memory under its arguments, and what to change so that a model fits."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kvcache.errors import DoesNotFitError
from kvcache.formats.quantization import find_quantization
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget, budget_of
from kvcache.memory.static_budget import static_budget_of
from kvcache.memory.terms import gib_text
from kvcache.shape.architecture import Architecture
from simulator.engines.engines import AnyArgs, with_settings
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.compilation import PIECEWISE, Compilation
from simulator.engines.vllm.defaults import check_whole_prompts
from simulator.engines.vllm.modalities import ModalityLimits, check_undivided

Remedy = dict[str, str]  # options with the values, "" of a switch, that together make a model fit

LARGER_SIZES = (2, 4, 8, 16, 32, 64)
FEWER_SEQS = (512, 256, 128, 64)  # the profiling run computes the logits of as many sequences as may run
PIECEWISE_GRAPHS: Remedy = {"--compilation-config": str(Compilation(cudagraph_mode=PIECEWISE))}
_OF_SGLANG = ("mem_fraction_static", "chunked_prefill_size", "cuda_graph_max_bs_decode")


def memory_budget(
    architecture: Architecture, gpu: GPU, args: AnyArgs | None = None, **settings: object
) -> MemoryBudget:
    """What the engine would log at start under these arguments; `settings` are arguments by name.

    Returns a budget even where nothing fits (see `fits`); raises `ValueError` where the engine refuses the arguments.
    """
    found = with_settings(args, settings).filled(architecture, gpu)
    if isinstance(found, SGLangArgs):
        return static_budget_of(architecture, gpu, found)
    if not found.is_text_only(architecture):
        check_undivided(
            architecture.undivided_items,
            found.limit_mm_per_prompt or ModalityLimits(),
            model=architecture.name,
            max_num_batched_tokens=found.max_num_batched_tokens,
        )
    if not found.enable_chunked_prefill:
        check_whole_prompts(found.max_num_batched_tokens, found.max_model_len)
    return budget_of(architecture, gpu, found)


def require_fit(architecture: Architecture, gpu: GPU, args: AnyArgs | None = None, **settings: object) -> MemoryBudget:
    """The same, or `DoesNotFitError` with what is missing and the smallest change that helps."""
    args = with_settings(args, settings)
    budget = memory_budget(architecture, gpu, args)
    if not budget.fits:
        raise DoesNotFitError(why_unfit(budget, args, remedies(architecture, gpu, budget, args)))
    return budget


def why_unfit(budget: MemoryBudget, args: AnyArgs, found: list[Remedy]) -> str:
    """What is missing where the engine would not start, and the remedies that were found."""
    if budget.missing_blocks and not budget.missing_bytes:
        remedy = " or ".join(remedy_words(found))
        return f"{budget.model} does not start: {why_too_few_blocks(budget)}; it starts with {remedy}"
    if args.num_gpu_blocks_override is not None:
        return (
            f"{budget.num_gpu_blocks:,} KV blocks of {budget.block_size} tokens do not hold one request of "
            f"max_model_len {budget.max_model_len:,}; raise --num-gpu-blocks-override to "
            f"{_blocks_of_a_request(budget)} or lower --max-model-len"
        )
    longest = "" if budget.engine == "sglang" else f", max_model_len {budget.max_model_len:,}"
    words = " or ".join(remedy_words(found))
    return (
        f"{budget.model} does not fit on {budget.num_gpus} × {budget.gpu} ({budget.split}, "
        f"{budget.weights_format} weights{longest}): "
        f"{gib_text(budget.missing_bytes)} short per GPU; "
        f"{f'fits with {words}' if words else 'no TP up to 64 nor 8 or 4 bits help; take a larger GPU'}"
    )


def why_too_few_blocks(budget: MemoryBudget) -> str:
    """Why vLLM stops where it has no block of state for each sequence."""
    return (
        f"max_num_seqs {budget.max_num_seqs:,} is above the {budget.num_gpu_blocks:,} KV blocks of "
        f"{budget.num_gpus} × {budget.gpu} ({budget.split}), and full CUDA graphs take one for each sequence's state"
    )


def remedy_words(found: Sequence[Remedy]) -> list[str]:
    """Each remedy as a shell takes it."""
    return [
        " ".join(f"{option} {shlex.quote(value)}" if value else option for option, value in remedy.items())
        for remedy in found
    ]


def _blocks_of_a_request(budget: MemoryBudget) -> int:
    """KV blocks that one request of `max_model_len` needs, where their number is given."""
    return budget.required_kv_bytes * budget.num_gpu_blocks // max(budget.available_kv_bytes, 1)


def remedies(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[Remedy]:
    """Single changes with which a budget that does not fit would, else the smallest TP that fits a shorter context.

    With each, the sequences that vLLM surely starts with, where its default would be too many.
    """
    if budget.missing_blocks and not budget.missing_bytes:
        return [{"--max-num-seqs": str(most)} for most in (budget.num_gpu_blocks_low,) if most] + [PIECEWISE_GRAPHS]
    if args.num_gpu_blocks_override is not None:
        return [{"--num-gpu-blocks-override": str(_blocks_of_a_request(budget))}]
    return [_as_remedy(arch, gpu, args, change) for change in _changes(arch, gpu, budget, args)]


def _as_remedy(arch: Architecture, gpu: GPU, args: AnyArgs, change: dict[str, Any]) -> Remedy:
    changed = replace(args, **change)
    started = startable(arch, gpu, changed)
    more = {} if started.max_num_seqs == changed.max_num_seqs else {"max_num_seqs": started.max_num_seqs}
    own = changed.filled(arch, gpu) if None in change.values() else changed  # the engine's own for what is taken back
    return {_flag(name): "" if change[name] is True else str(getattr(own, name)) for name in change} | {
        _flag(name): str(most) for name, most in more.items()
    }


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _changes(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[dict[str, Any]]:
    """Arguments by name; None stands for the engine's default."""
    found: list[dict[str, Any]] = []
    tp = next(
        (
            size * args.attention_groups
            for size in LARGER_SIZES
            if size > budget.tp and _fits(arch, gpu, args, tensor_parallel_size=size * args.attention_groups)
        ),
        None,
    )
    if tp is not None:
        found.append({"tensor_parallel_size": tp})
    is_sglang = isinstance(args, SGLangArgs)
    for name in ("fp8", "awq"):
        fewer_bits = find_quantization(name).weight_bits < find_quantization(budget.quantization).weight_bits
        if fewer_bits and _fits(arch, gpu, args, quantization=name):
            found.append({"quantization": name})
            break
    if budget.kv_cache_dtype == "auto" and not is_sglang and _fits(arch, gpu, args, kv_cache_dtype="fp8"):
        found.append({"kv_cache_dtype": "fp8"})
    if arch.modalities and not args.language_model_only and _fits(arch, gpu, args, language_model_only=True):
        found.append({"language_model_only": True})
    own = _OF_SGLANG if is_sglang else ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs")
    found += [
        {name: None} for name in own if getattr(args, name) is not None and _fits(arch, gpu, args, **{name: None})
    ]
    if is_sglang:  # which starts with whatever is left for the KV cache
        return found
    seqs = next((n for n in FEWER_SEQS if n < budget.max_num_seqs and _fits(arch, gpu, args, max_num_seqs=n)), None)
    if seqs is not None:
        found.append({"max_num_seqs": seqs})
    slots = next((n for n in _fewer_slots(arch, gpu, args) if _fits(arch, gpu, args, max_loras=n)), None)
    if slots is not None:
        found.append({"max_loras": slots})
    length = longest_fit(arch, gpu, budget, args)
    if length:
        found.append({"max_model_len": length})
    if all("tensor_parallel_size" in change for change in found):
        more = [] if found else _shorter_on_more(arch, gpu, budget, args)
        found += [*_fewer_bits_and_shorter(arch, gpu, budget, args), *more]
    return found


def _fewer_slots(arch: Architecture, gpu: GPU, args: AnyArgs) -> list[int]:
    """Powers of 2 below the slots for LoRA adapters, the most first."""
    filled = args.filled(arch, gpu)
    if not isinstance(filled, EngineArgs) or filled.adapters is None:
        return []
    return [1 << power for power in reversed(range((filled.max_loras - 1).bit_length()))]


def startable(arch: Architecture, gpu: GPU, args: AnyArgs) -> AnyArgs:
    """The arguments with as many sequences as vLLM surely starts with, where its default may be too many."""
    if isinstance(args, SGLangArgs) or args.max_num_seqs is not None:
        return args
    budget = _budget_or_none(arch, gpu, args)
    if budget is None or not budget.may_lack_blocks or not budget.num_gpu_blocks_low:
        return args
    return replace(args, max_num_seqs=budget.num_gpu_blocks_low)


def _fewer_bits_and_shorter(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[dict[str, Any]]:
    """On the same GPUs, where no single change suffices."""
    for name in ("fp8", "awq"):
        if find_quantization(name).weight_bits < find_quantization(budget.quantization).weight_bits:
            length = longest_fit(arch, gpu, budget, replace(args, quantization=name))
            if length:
                return [{"quantization": name, "max_model_len": length}]
    return []


def _shorter_on_more(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[dict[str, Any]]:
    for size in LARGER_SIZES:
        length = longest_fit(arch, gpu, budget, replace(args, tensor_parallel_size=size))
        if size > budget.tp and length:
            return [{"tensor_parallel_size": size, "max_model_len": length}]
    return []


def _fits(arch: Architecture, gpu: GPU, args: AnyArgs, **change: object) -> bool:
    """At the low end of the KV blocks' interval, too; SGLang starts with whatever is left."""
    budget = _startable_budget(arch, gpu, args, **change)
    return budget is not None and (budget.fits if isinstance(args, SGLangArgs) else budget.surely_fits)


def _startable_budget(arch: Architecture, gpu: GPU, args: AnyArgs, **change: object) -> MemoryBudget | None:
    return _budget_or_none(arch, gpu, startable(arch, gpu, with_settings(args, change)))


def _budget_or_none(arch: Architecture, gpu: GPU, args: AnyArgs, **change: object) -> MemoryBudget | None:
    try:
        return memory_budget(arch, gpu, args, **change)
    except ValueError:  # a split that vLLM refuses is no remedy
        return None


def longest_fit(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> int:
    """The longest `max_model_len` that starts at the low end of the KV blocks' interval, too, down to a kilotoken.

    At most the model's own; 0 where none of 1,024 tokens starts.
    """
    low, high = 0, min(budget.max_model_len, arch.max_position_embeddings) // 1024
    while low < high:
        middle = (low + high + 1) // 2
        found = _startable_budget(arch, gpu, args, max_model_len=middle * 1024)
        low, high = (middle, high) if found is not None and found.surely_fits else (low, middle - 1)
    return low * 1024
