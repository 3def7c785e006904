"""How SGLang holds the states of SSM and linear-attention layers: in a pool of slots beside the KV cache.

Read from SGLang 0.5.23: `srt/mem_cache/kv_cache_configurator.py` (`_handle_max_mamba_cache`, `_calculate_mamba_ratio`),
`srt/configs/mamba_utils.py`, `srt/arg_groups/overrides.py` (`_mamba_radix_cache_resolution`, `mamba_cache_chunk_size`),
and the models' configs.
"""

from dataclasses import dataclass
from typing import Protocol

from files.errors import HeadcountError
from kvcache.errors import DoesNotFitError
from kvcache.layout.state_content import state_bytes
from kvcache.shape.architecture import Architecture

NO_BUFFER, EXTRA_BUFFER = "no_buffer", "extra_buffer"
STRATEGIES = (NO_BUFFER, EXTRA_BUFFER)
STATES_PER_REQUEST = 3  # slots for each running request, without those for states that are tracked
_GIB = 2**30
# By model type, tokens after which a layer's kernel can hand out its state: `chunk_size` or `mamba_chunk_size` of the
# published configs, else that of flash-linear-attention's kernels.
_KERNEL_CHUNKS = {
    "bailing_moe_v3": 64, "kimi_linear": 64, "qwen3_5_moe_text": 64, "qwen3_5_text": 64, "qwen3_next": 64,
    "nemotron_h": 128, "falcon_h1": 256, "granitemoehybrid": 256, "lfm2": 1, "lfm2_moe": 1,
}  # fmt: skip
_UNTRACKED = ("lfm2", "lfm2_moe")  # not among `_MAMBA_EXTRA_BUFFER_ARCHS`
_TEXT_ALONE = ("lfm2", "nemotron_h")  # SGLang has other classes for those that see or hear


class StateSettings(Protocol):
    """An SGLang server's arguments, as far as its pool of states depends on them."""

    @property
    def page_size(self) -> int: ...
    @property
    def disable_radix_cache(self) -> bool: ...
    @property
    def disable_overlap_schedule(self) -> bool: ...
    @property
    def requests_of_rank(self) -> int | None: ...  # of --max-running-requests
    @property
    def states_of_rank(self) -> int | None: ...  # of --max-mamba-cache-size
    @property
    def mamba_full_memory_ratio(self) -> float: ...
    @property
    def mamba_radix_cache_strategy(self) -> str: ...
    @property
    def decode_width(self) -> int: ...  # tokens that are verified of a request at once; 1 without draft tokens


@dataclass(frozen=True, kw_only=True)
class StatePool:
    """The slots for states that one GPU holds."""

    slot_bytes: int  # of all layers
    kernel_chunk: int
    per_request: int  # slots that the pool has for each running request
    given: int | None  # slots, where they do not follow from memory
    memory_ratio: float  # bytes of states over those of the KV cache, where they do
    verified: int = 0  # states that each running request has in a buffer while it is verified
    most_running: int | None = None

    def slots(self, available_bytes: int) -> int:
        """Of so much memory for states and KV cache; negative where there is none. One more is left for padding."""
        if self.given is not None:
            return self.given
        share = available_bytes / _GIB * self.memory_ratio / (1 + self.memory_ratio)
        padding, each = self.slot_bytes * (1 + self.verified), self.slot_bytes * (1 + self.verified / self.per_request)
        return int((share * _GIB - padding) // each)

    def left(self, available_bytes: int) -> int:
        """What the slots leave of that memory for the KV cache."""
        slots = self.slots(available_bytes)
        running = min(self.most_running or slots, slots // self.per_request)
        buffer = self.slot_bytes * (running + 1) * self.verified
        taken = self.slot_bytes * (slots + 1)
        return int((available_bytes / _GIB - buffer / _GIB - taken / _GIB) * _GIB)

    def running_requests(self, slots: int) -> int:
        """How many requests can run with so many slots. Raises DoesNotFitError where none can."""
        if slots < self.per_request:
            raise DoesNotFitError(
                f"the pool of SSM states has {max(slots, 0)} slots, and a running request takes {self.per_request}; "
                "raise --mem-fraction-static or --mamba-full-memory-ratio, or take more or larger GPUs"
            )
        return slots // self.per_request


def state_pool(arch: Architecture, settings: StateSettings, tensor_parallel_size: int) -> StatePool | None:
    """The pool of a model's states; None where its layers have none."""
    if arch.state_space is None:
        return None
    given = settings.states_of_rank
    if given is None and settings.disable_radix_cache:
        given = settings.requests_of_rank
    return StatePool(
        slot_bytes=arch.num_state_layers * state_bytes(arch.state_space, "bfloat16", tensor_parallel_size),
        kernel_chunk=_KERNEL_CHUNKS[arch.model_type],
        per_request=_slots_per_request(settings),
        given=given,
        memory_ratio=settings.mamba_full_memory_ratio,
        verified=settings.decode_width if settings.decode_width > 1 else 0,
        most_running=settings.requests_of_rank,
    )


def _slots_per_request(settings: StateSettings) -> int:
    if settings.disable_radix_cache:
        return 1
    if settings.mamba_radix_cache_strategy == NO_BUFFER:
        return STATES_PER_REQUEST
    return STATES_PER_REQUEST + (1 if settings.disable_overlap_schedule else 2)


def default_strategy(arch: Architecture, *, has_overlap: bool, page_size: int) -> str:
    """`--mamba-radix-cache-strategy` where nobody gives one."""
    return EXTRA_BUFFER if (has_overlap or page_size > 1) and arch.model_type not in _UNTRACKED else NO_BUFFER


def refuse_states(arch: Architecture, strategy: str | None) -> None:
    """Raise HeadcountError for states that are not simulated as this model has them under SGLang."""
    if arch.state_space is None:
        return
    if arch.model_type not in _KERNEL_CHUNKS or (arch.model_type in _TEXT_ALONE and arch.modalities):
        raise HeadcountError(
            f"SGLang's states of {arch.state_space.kind} layers as {arch.name} has them are not simulated; leave "
            "--engine sglang out to ask about vLLM, or choose another model"
        )
    if strategy == EXTRA_BUFFER and arch.model_type in _UNTRACKED:
        raise HeadcountError(f"SGLang tracks no states of {arch.name}; leave --mamba-radix-cache-strategy out")
