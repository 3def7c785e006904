"""What an engine takes of a GPU's memory under its arguments, and what to change so that a model fits."""

from dataclasses import replace

from kvcache.errors import DoesNotFitError
from kvcache.formats.quantization import find_quantization
from kvcache.gpus.gpu import GPU
from kvcache.memory.budget import MemoryBudget, budget_of
from kvcache.memory.static_budget import static_budget_of
from kvcache.memory.terms import GIB
from kvcache.shape.architecture import Architecture
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import AnyArgs, with_settings
from simulator.engines.sglang.arguments import SGLangArgs

Remedy = dict[str, str]  # options with the values that together make a model fit

LARGER_SIZES = (2, 4, 8, 16, 32, 64)
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
    if args.num_gpu_blocks_override is not None:
        return (
            f"{budget.num_gpu_blocks:,} KV blocks of {budget.block_size} tokens do not hold one request of "
            f"max_model_len {budget.max_model_len:,}; raise --num-gpu-blocks-override to "
            f"{_blocks_of_a_request(budget)} or lower --max-model-len"
        )
    longest = "" if budget.engine == "sglang" else f", max_model_len {budget.max_model_len:,}"
    words = " or ".join(" ".join(f"{option} {value}" for option, value in remedy.items()) for remedy in found)
    return (
        f"{budget.model} does not fit on {budget.num_gpus} × {budget.gpu} ({budget.split}, "
        f"{budget.weights_format} weights{longest}): "
        f"{budget.missing_bytes / GIB:,.1f} GiB short per GPU; "
        f"{f'fits with {words}' if words else 'no TP up to 64 nor 8 or 4 bits help; take a larger GPU'}"
    )


def _blocks_of_a_request(budget: MemoryBudget) -> int:
    """KV blocks that one request of `max_model_len` needs, where their number is given."""
    return budget.required_kv_bytes * budget.num_gpu_blocks // max(budget.available_kv_bytes, 1)


def remedies(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[Remedy]:
    """Single changes with which a budget that does not fit would, else the smallest TP that fits a shorter context."""
    if args.num_gpu_blocks_override is not None:
        return [{"--num-gpu-blocks-override": str(_blocks_of_a_request(budget))}]
    found: list[Remedy] = []
    tp = next(
        (size for size in LARGER_SIZES if size > budget.tp and _fits(arch, gpu, args, tensor_parallel_size=size)),
        None,
    )
    if tp is not None:
        found.append({"--tensor-parallel-size": str(tp)})
    is_sglang = isinstance(args, SGLangArgs)
    for name in ("fp8", "awq"):
        fewer_bits = find_quantization(name).weight_bits < find_quantization(budget.quantization).weight_bits
        if fewer_bits and _fits(arch, gpu, args, quantization=name):
            found.append({"--quantization": name})
            break
    if budget.kv_cache_dtype == "auto" and not is_sglang and _fits(arch, gpu, args, kv_cache_dtype="fp8"):
        found.append({"--kv-cache-dtype": "fp8"})
    for name in _OF_SGLANG if is_sglang else ("gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs"):
        if getattr(args, name) is not None and _fits(arch, gpu, args, **{name: None}):
            default = getattr(with_settings(args, {name: None}).filled(arch, gpu), name)
            found.append({f"--{flag_of(name, arguments_of(type(args))[name])}": str(default)})  # the engine's own
    if is_sglang:  # which starts with whatever is left for the KV cache
        return found
    length = longest_fit(arch, gpu, budget, args)
    if length:
        found.append({"--max-model-len": str(length)})
    if all("--tensor-parallel-size" in remedy for remedy in found):
        more = [] if found else _shorter_on_more(arch, gpu, budget, args)
        found += [*_fewer_bits_and_shorter(arch, gpu, budget, args), *more]
    return found


def _fewer_bits_and_shorter(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[Remedy]:
    """On the same GPUs, where no single change suffices."""
    for name in ("fp8", "awq"):
        if find_quantization(name).weight_bits < find_quantization(budget.quantization).weight_bits:
            length = longest_fit(arch, gpu, budget, replace(args, quantization=name))
            if length:
                return [{"--quantization": name, "--max-model-len": str(length)}]
    return []


def _shorter_on_more(arch: Architecture, gpu: GPU, budget: MemoryBudget, args: AnyArgs) -> list[Remedy]:
    for size in LARGER_SIZES:
        length = longest_fit(arch, gpu, budget, replace(args, tensor_parallel_size=size))
        if size > budget.tp and length:
            return [{"--tensor-parallel-size": str(size), "--max-model-len": str(length)}]
    return []


def _fits(arch: Architecture, gpu: GPU, args: AnyArgs, **change: object) -> bool:
    budget = _budget_or_none(arch, gpu, args, **change)
    return budget is not None and budget.fits


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
        found = _budget_or_none(arch, gpu, args, max_model_len=middle * 1024)
        low, high = (middle, high) if found is not None and found.surely_fits else (low, middle - 1)
    return low * 1024
