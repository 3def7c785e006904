"""What `headcount memory` answers about one deployment, as sentences or as JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headcount.strict import assumptions_json
from kvcache.memory.budget import MemoryBudget
from kvcache.memory.conversations import conversations_at_once, tokens_per_user
from kvcache.memory.remedies import Remedy

GIB = 2**30
PRESET = "chat"
BUDGET_KEYS = (
    "model", "gpu", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "enable_expert_parallel",
    "quantization", "kv_cache_dtype", "gpu_memory_utilization", "max_model_len", "max_num_seqs",
    "max_num_batched_tokens", "vllm_version", "fits", "missing_bytes", "spare_bytes", "total_bytes", "requested_bytes",
    "weights_bytes", "activation_peak_bytes", "non_torch_bytes", "cuda_graph_bytes", "available_kv_bytes",
    "required_kv_bytes", "num_gpu_blocks", "block_size", "kv_cache_tokens", "max_concurrency", "kv_bytes_per_token",
    "kv_bytes_per_token_per_gpu",
)  # fmt: skip
KEYS_IF_KNOWN = (
    "dtype", "num_gpu_blocks_low", "num_gpu_blocks_high", "kv_cache_tokens_low", "kv_cache_tokens_high",
    "state_bytes_per_request",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class MeanContext:
    """The length that stands for a typical conversation, with where it comes from."""

    tokens: int
    source: str


@dataclass(frozen=True, kw_only=True)
class MemoryAnswer:
    """A budget with what it means for people, and what would make it fit."""

    budget: MemoryBudget
    users: tuple[int, ...]
    given_context_tokens: int | None = None  # None: the chat preset's mean
    remedies: Sequence[Remedy] = ()
    assumed: Sequence[tuple[str, str, str]] = ()  # (name, value, why) of the model's shape

    @cached_property
    def context(self) -> MeanContext:
        """What stands for a typical conversation; drawn only when asked for."""
        return mean_context(self.given_context_tokens, self.budget.max_model_len)

    @property
    def conversations(self) -> int:
        """Conversations of the mean context that fit at once."""
        return conversations_at_once(self.budget, self.context.tokens)

    @property
    def tokens_per_user(self) -> list[tuple[int, int]]:
        """How long a context each of so many users can hold at once."""
        return [(users, tokens_per_user(self.budget, users)) for users in self.users]

    def to_json(self) -> dict[str, Any]:
        """The keys of `headcount memory --json`."""
        budget = self.budget
        found = {"schema_version": 1, **{key: getattr(budget, key) for key in BUDGET_KEYS}}
        found |= {key: getattr(budget, key) for key in KEYS_IF_KNOWN if getattr(budget, key, None) is not None}
        found |= {
            "remedies": list(self.remedies),
            "mean_context_tokens": self.context.tokens,
            "mean_context_source": self.context.source,
            "conversations_at_once": self.conversations,
            "tokens_per_user": [{"users": users, "tokens_per_user": tokens} for users, tokens in self.tokens_per_user],
        }
        return found | {
            "architecture_assumptions": assumptions_json(self.assumed),
            "assumptions": assumptions_json(budget.assumptions),
        }


def mean_context(given: int | None, max_model_len: int) -> MeanContext:
    """The context given, at most `max_model_len`, or the chat preset's mean at that length."""
    if given is not None:
        cut = f", cut to max_model_len {max_model_len:,}" if given > max_model_len else ""
        return MeanContext(tokens=min(given, max_model_len), source=f"--mean-context{cut}")
    from workloads.context import mean_context_tokens  # noqa: PLC0415  with numpy, only where none is given
    from workloads.errors import WorkloadError  # noqa: PLC0415
    from workloads.load import load_preset  # noqa: PLC0415

    try:
        tokens = round(mean_context_tokens(load_preset(PRESET), max_model_len))
    except WorkloadError:
        return MeanContext(tokens=max_model_len, source=f"max_model_len, too short for the {PRESET} preset")
    return MeanContext(tokens=tokens, source=f"mean prompt with answer of the {PRESET} preset")


def verdict(answer: MemoryAnswer) -> str:
    """Whether it fits, by how much, what to change."""
    budget = answer.budget
    request = f"one request of the full {budget.max_model_len:,} tokens"
    if budget.fits:
        doubt = " Only just: at the low end of the 90 % interval of its KV blocks vLLM would not start."
        spare = f"Fits: {budget.spare_bytes / GIB:,.1f} GiB per GPU more than {request} needs."
        return spare + (doubt if is_doubtful(budget) else "")
    missing = max(0.1, budget.missing_bytes / GIB)
    return f"Does not fit: {missing:,.1f} GiB short per GPU for {request}. {advice(answer.remedies)}"


def is_doubtful(budget: MemoryBudget) -> bool:
    """Whether it fits, but a request of the full length needs more blocks than the low end of their interval."""
    low = getattr(budget, "num_gpu_blocks_low", None)
    if low is None or not budget.fits:
        return False
    return bool(low * budget.available_kv_bytes < budget.required_kv_bytes * budget.num_gpu_blocks)


def advice(remedies: Sequence[Remedy]) -> str:
    """Which change helps."""
    if not remedies:
        return "No larger TP and no smaller format helps: take a larger GPU."
    words = [" ".join(f"{option} {value}" for option, value in remedy.items()) for remedy in remedies]
    return f"It fits with {', or with '.join(words)}."


def pool(answer: MemoryAnswer) -> list[str]:
    """What the KV cache holds, a sentence per line; nothing where vLLM would not start."""
    budget = answer.budget
    if not budget.fits:
        return []
    return [
        f"{budget.num_gpu_blocks:,} KV blocks of {budget.block_size} tokens{_interval(budget)}: "
        f"{budget.kv_cache_tokens:,} tokens{_bytes_per_token(budget)}{_ranks(budget)}",
        f"{budget.max_concurrency:.2f} requests of the full {budget.max_model_len:,} tokens at once "
        "(vLLM's 'Maximum concurrency')",
        _conversations(answer),
        *_per_user(answer),
    ]


def _interval(budget: MemoryBudget) -> str:
    low, high = (getattr(budget, f"num_gpu_blocks_{end}", None) for end in ("low", "high"))
    return "" if low is None or high is None else f" (90 % interval {low:,} to {high:,})"


def _ranks(budget: MemoryBudget) -> str:
    ranks = budget.data_parallel_size
    return f"; of this and what follows each of the {ranks} attention replicas has its own" if ranks > 1 else ""


def _bytes_per_token(budget: MemoryBudget) -> str:
    """What a token and a request's states take on all GPUs that share them."""
    state = getattr(budget, "state_bytes_per_request", None)
    fixed = f" and {state * budget.tp / 2**20:,.1f} MiB of state per request" if state else ""
    windows = any(group.window is not None for group in budget.layout.groups)
    until = " while all layers attend to it" if windows else ""
    gpus = budget.tensor_parallel_size * budget.pipeline_parallel_size
    over = f", over {gpus} GPUs together{copies_of_kv(budget)}" if gpus > 1 else ""
    return f" at {kv_bytes_held(budget) / 1024:,.1f} KiB each{until}{fixed}{over}"


def kv_bytes_held(budget: MemoryBudget) -> int:
    """What a token takes over all GPUs of a replica, or of an attention replica: what several keep counts so often."""
    return budget.layout.bytes_per_token * budget.tensor_parallel_size


def copies_of_kv(budget: MemoryBudget) -> str:
    """How much of that is there once, where GPUs keep the same KV heads or latents."""
    if kv_bytes_held(budget) == budget.kv_bytes_per_token:
        return ""
    return f"; {budget.kv_bytes_per_token / 1024:,.1f} KiB without the copies that several GPUs keep"


def _conversations(answer: MemoryAnswer) -> str:
    count, seqs = answer.conversations, answer.budget.max_num_seqs
    running = f"; {seqs:,} of them run in one step (max_num_seqs)" if count > seqs else ""
    return (
        f"{count:,} conversations of {answer.context.tokens:,} tokens ({answer.context.source}) at once, "
        f"no blocks shared{running}"
    )


def _per_user(answer: MemoryAnswer) -> list[str]:
    parts = [f"{users:,} → {tokens:,}" for users, tokens in answer.tokens_per_user]
    return [f"tokens that each of N users can hold at once: {', '.join(parts)}"] if parts else []
