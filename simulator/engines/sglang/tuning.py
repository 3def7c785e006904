"""What requests wait for under SGLang, and which of its arguments may help.

What helps follows SGLang's own advice (docs.sglang.io, advanced_features/hyperparameter_tuning).
"""

from collections.abc import Iterator
from typing import Final

from kvcache.memory.budget import MemoryBudget
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.defaults import NO_CHUNKS
from simulator.engines.tuning import Change, Tuning, Words

MORE_MEMORY: Final = 0.9  # of a GPU for weights and KV cache; "out of memory" when prefilling asks for less
LESS_CONSERVATIVE: Final = 0.3  # "a value like 0.3", where token usage stays low while requests wait
KV_TOKENS: Final = "KV tokens"
RUNNING: Final = "max_running_requests"


def words(args: SGLangArgs) -> Words:
    """Of the two limits on the tokens of a prefill batch the lower one is met."""
    is_cut = args.chunked_prefill_size != NO_CHUNKS and args.chunked_prefill_size <= args.max_prefill_tokens
    prefill = "chunked_prefill_size" if is_cut else "max_prefill_tokens"
    return Words(kv=KV_TOKENS, running=RUNNING, prefill=prefill, longest="context_length", preempted="retractions")


def changes(args: SGLangArgs, budget: MemoryBudget, binding: str) -> Iterator[Change]:
    if not budget.kv_cache_dtype.startswith("fp8"):
        yield "kv_cache_dtype", "fp8_e4m3"
    if budget.quantization == "none":
        yield "quantization", "fp8"
    if args.chunked_prefill_size != NO_CHUNKS:
        yield "chunked_prefill_size", 2 * args.chunked_prefill_size
        if args.chunked_prefill_size % (2 * args.page_size) == 0:
            yield "chunked_prefill_size", args.chunked_prefill_size // 2
        if not args.enable_mixed_chunk:
            yield "enable_mixed_chunk", True
    if "max_prefill_tokens" in binding:
        yield "max_prefill_tokens", 2 * args.max_prefill_tokens
    if args.schedule_policy == "fcfs" and not args.disable_radix_cache:
        yield "schedule_policy", "lpm"
    if KV_TOKENS in binding:
        if args.mem_fraction_static < MORE_MEMORY:
            yield "mem_fraction_static", MORE_MEMORY
        if args.schedule_conservativeness > LESS_CONSERVATIVE:
            yield "schedule_conservativeness", LESS_CONSERVATIVE
    if RUNNING in binding:
        yield "max_running_requests", 2 * args.max_running_requests


TUNING: Final = Tuning(
    words=words,
    changes=changes,
    searched={
        "chunked_prefill_size": (1024, 2048, 4096, 8192, 16384, 32768),
        "max_running_requests": (32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
        "enable_mixed_chunk": (True,),
        "kv_cache_dtype": ("fp8_e4m3",),
        "quantization": ("fp8",),
    },  # not mem_fraction_static: SGLang's default leaves what the activations of a chunk take, and nothing checks more
    tried={"schedule_policy": ("lpm",), "schedule_conservativeness": (LESS_CONSERVATIVE,)},
)
