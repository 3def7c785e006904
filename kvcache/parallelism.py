"""How tensor, pipeline or expert parallelism divides a model over ranks."""

from dataclasses import dataclass

from files.errors import HeadcountError
from kvcache.errors import SplitError

VOCABULARY_PADDING = 64  # vLLM, model_executor/layers/vocab_parallel_embedding.py, DEFAULT_VOCAB_PADDING_SIZE


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Ranks of one replica. `data_parallel_size` counts attention replicas that share the experts."""

    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    splits_dense_over_groups: bool = False  # MLPs without experts, as SGLang does
    splits_shared_over_groups: bool = False  # shared experts
    splits_head_over_groups: bool = False
    num_redundant_experts: int = 0  # of each layer, over all ranks
    pad_vocabulary_to: int = VOCABULARY_PADDING
    pad_expert_width_to: int = 1  # some kernels want larger expert matrices than the model has
    pad_expert_hidden_to: int = 1

    @property
    def expert_ways(self) -> int:
        """Ranks that share one layer's experts: attention replicas pool theirs (vLLM FusedMoEParallelConfig)."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def dense_ways(self) -> int:
        """Ranks that share a matrix of an MLP without experts."""
        return self.expert_ways if self.splits_dense_over_groups else self.tensor_parallel_size

    @property
    def shared_ways(self) -> int:
        """Ranks that share a matrix of a shared expert, where their tokens are not dealt out."""
        return self.expert_ways if self.splits_shared_over_groups else self.tensor_parallel_size

    @property
    def head_ways(self) -> int:
        """Ranks that share the head."""
        return self.expert_ways if self.splits_head_over_groups else self.tensor_parallel_size

    @property
    def pools_dense(self) -> bool:
        """Whether MLPs without experts compute the tokens of all attention replicas together."""
        return self.splits_dense_over_groups and self.data_parallel_size > 1

    @property
    def pools_shared(self) -> bool:
        """Whether shared experts do."""
        return self.splits_shared_over_groups and self.data_parallel_size > 1

    @property
    def sequence_parallel_moe(self) -> bool:
        """Whether a layer's tokens are dealt out to tensor-parallel ranks, so that each holds shared experts whole.

        vLLM 0.32 config/parallel.py, use_sequence_parallel_moe, with the all-to-all backend that it takes by default.
        """
        is_wide = self.tensor_parallel_size > 1 and self.data_parallel_size > 1
        return self.enable_expert_parallel and is_wide and not self.splits_shared_over_groups

    def kv_heads_per_rank(self, num_key_value_heads: int) -> int:
        """KV heads on one rank: replicated where there are more ranks than heads.

        Raises `SplitError` where neither count divides the other, as vLLM does.
        """
        tp = self.tensor_parallel_size
        if num_key_value_heads % tp and tp % num_key_value_heads:
            raise SplitError(
                f"tensor_parallel_size {tp} neither divides nor is a multiple of the {num_key_value_heads} KV heads; "
                f"take {_divisors(num_key_value_heads)}, as many as hold the model"
            )
        return max(1, num_key_value_heads // tp)

    def experts_per_rank(self, num_experts: int) -> int:
        """Whole experts on the fullest rank under expert parallelism, redundant ones among them."""
        return -(-(num_experts + self.num_redundant_experts) // self.expert_ways)

    def stage_layers(self, num_layers: int, stage: int) -> range:
        """The 0-based layers of a pipeline stage.

        Left-over layers go to the stages before the last, from the back (vLLM distributed/utils.py, get_pp_indices).
        """
        pp = self.pipeline_parallel_size
        if num_layers < pp:
            raise HeadcountError(f"pipeline_parallel_size {pp} exceeds the model's {num_layers} layers")
        sizes = [num_layers // pp] * pp
        for extra in range(num_layers % pp):
            sizes[-(extra + 2)] += 1
        start = sum(sizes[:stage])
        return range(start, start + sizes[stage])


def pad_vocabulary(vocab_size: int, parallelism: Parallelism, ways: int | None = None) -> int:
    """Rows of the embedding after vLLM's padding, still a multiple of the tensor-parallel size, or of `ways`."""
    unit = parallelism.pad_vocabulary_to
    padded = -(-vocab_size // unit) * unit
    ways = parallelism.tensor_parallel_size if ways is None else ways
    return -(-padded // ways) * ways


def split(width: int, parallelism: Parallelism, what: str, *, exact: bool = True, ways: int | None = None) -> int:
    """A rank's share of a width. Raises `SplitError` where `exact` and it does not divide, as vLLM does."""
    parts = parallelism.tensor_parallel_size if ways is None else ways
    if exact and width % parts:
        named = f"tensor_parallel_size {parts}"
        if parts != parallelism.tensor_parallel_size:
            factors = f"{parallelism.tensor_parallel_size} × data_parallel_size {parallelism.data_parallel_size}"
            named = f"tensor_parallel_size {factors} = {parts}"
        sizes = _divisors(width) if width <= _MOST_LISTED else "one that does"
        raise SplitError(f"{named} does not divide the {what} {width}; take {sizes}")
    return -(-width // parts)


_MOST_LISTED = 128  # heads of today's models; the divisors of a width say nothing to a reader


def _divisors(count: int) -> str:
    """`1, 2, 4 or 8`."""
    found = [str(size) for size in range(1, count + 1) if count % size == 0]
    return " or ".join(filter(None, [", ".join(found[:-1]), found[-1]]))
