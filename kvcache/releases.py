"""Every rule that depends on a release of vLLM: what it says, in which releases it holds, where that is known from."""

import re
from dataclasses import dataclass
from functools import cache

NEWEST_RELEASE = "0.33.0"  # whose rules are known
DEFAULT_RELEASE = "0.32.0"
OLDEST_RELEASE = "0.4.1"  # of the servers that the memory model was compared with
_NUMBER = re.compile(r"^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:(?:\.?(?:a|b|rc|dev|post)|\+).*)?$", re.ASCII)


@cache
def release_key(vllm_version: str) -> tuple[int, int, int]:
    """What releases sort by. Raises ValueError on anything that is not a release number."""
    match = _NUMBER.match(vllm_version)
    if match is None:
        raise ValueError(
            f"vllm_version {vllm_version[:40]!r} is not a release number; give one such as '{DEFAULT_RELEASE}'"
        )
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release_number(vllm_version: str) -> str:
    """`v0.19.1rc2` → `0.19.1`."""
    return ".".join(map(str, release_key(vllm_version)))


def precedes(vllm_version: str, other: str) -> bool:
    """Whether a release is older than another."""
    return release_key(vllm_version) < release_key(other)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What holds from release `since` on, up to the one before `until`; None: at any time."""

    meaning: str
    source: str
    since: str | None = None
    until: str | None = None

    @property
    def first(self) -> str:
        """The line of releases from which on it holds, such as `0.28`."""
        assert self.since is not None, "asked of a rule that always held"
        return ".".join(self.since.split(".")[:2])

    def holds_in(self, vllm_version: str) -> bool:
        """Raises ValueError on anything that is not a release number."""
        is_new = self.since is None or not precedes(vllm_version, self.since)
        return is_new and (self.until is None or precedes(vllm_version, self.until))


# -- which engine, with which defaults

ENGINE_V1 = Rule(
    since="0.8.0",
    meaning="engine V1 is the default",
    source="release notes of 0.8.0",
)
V0_CHUNKS_LONG_PROMPTS = Rule(
    since="0.5.1",
    meaning="engine V0 computes prompts of more than 32,768 tokens in chunks",
    source="servers that the memory model was compared with",
)
LARGER_MEMORY_SHARE = Rule(
    since="0.21.0",
    meaning="gpu_memory_utilization is 0.92 by default; earlier, 0.9",
    source="vllm/config/cache.py of 0.32 and 0.15; that the change came with the CUDA-graph estimate is assumed",
)
LARGER_BATCHES_FROM_160_GIB = Rule(
    since="0.27.0",
    meaning="GPUs of at least 160 GiB take 16,384 batched tokens by default",
    source="vllm/engine/arg_utils.py, get_batch_defaults",
)
ASYNC_SCHEDULING = Rule(
    since="0.14.0",
    meaning="async_scheduling is on by default, except with drafts that are not the model's own",
    source="release notes of 0.14.0",
)
ASYNC_SCHEDULING_WITH_DRAFT_MODEL = Rule(
    since="0.32.0",
    meaning="async_scheduling is also on by default with a draft model",
    source="vllm/config/vllm.py of 0.32, not yet in 0.27; since when in between is not known",
)
ASYNC_SCHEDULING_WITH_NGRAM = Rule(
    since="0.33.0",
    meaning="async_scheduling is also possible with n-gram drafts, and on by default, under Model Runner V2",
    source="vllm/config/vllm.py of 0.33, VllmConfig.__post_init__",
)
NO_RETENTION_INTERVAL = Rule(
    since="0.29.0",
    meaning="prefix_cache_retention_interval is 0 by default; earlier, every block of a window is kept",
    source="vllm/config/cache.py, vllm/envs.py",
)

# -- how the scheduler decides (vllm/v1/core/sched/scheduler.py); each is a setting of the scheduler under this name

SCHEDULER_RULES = {
    "skipped_victim_shifts_scan": Rule(
        since="0.28.0",
        meaning="when the priority policy preempts a running request that had its turn without being scheduled, the "
        "scan does not pass over the one that moves into its place",
        source="vllm/v1/core/sched/scheduler.py of 0.28",
    ),
    "drafts_share_token_budget": Rule(
        since="0.28.0",
        meaning="a draft model's slots are taken from the step's token budget as sequences are scheduled; earlier, for "
        "max_num_seqs sequences beforehand",
        source="vllm/v1/core/sched/scheduler.py of 0.28",
    ),
    "prefix_hit_joins_drafting": Rule(
        since="0.30.0",
        meaning="a request that a prefix hit leaves one token to compute is padded to the width of a drafting step "
        "even if nothing else runs, and not at all where that would pass max_model_len",
        source="vllm/v1/core/sched/scheduler.py of 0.30",
    ),
    "threshold_spares_lone_request": Rule(
        since="0.31.0",
        meaning="long_prefill_token_threshold does not hold back a request that is alone",
        source="vllm/v1/core/sched/scheduler.py of 0.31",
    ),
    "passed_over_keep_place": Rule(
        since="0.31.0",
        meaning="a preempted request that is skipped while its last token is in flight keeps its place; earlier, it "
        "waited ahead of those preempted after it",
        source="vllm/v1/core/sched/scheduler.py of 0.31",
    ),
    "hashes_look_ahead": Rule(
        since="0.33.0",
        meaning="EAGLE keeps the whole prefix hit, since a block's hash covers the token after it too; earlier, it "
        "computed the last block of a hit again",
        source="vllm/config/vllm.py of 0.33, num_hash_lookahead_tokens",
    ),
    "scan_goes_past_self_preemption": Rule(
        since="0.33.0",
        meaning="under the priority policy, running requests after one that preempts itself are still tried; earlier, "
        "that ended the scan",
        source="vllm/v1/core/sched/scheduler.py of 0.33",
    ),
    "drafts_cached_on_delivery": Rule(
        since="0.33.0",
        meaning="under synchronous scheduling, blocks that accepted drafts fill can be hit from the end of their step "
        "on; earlier, from the step that schedules the request again",
        source="vllm/v1/core/sched/scheduler.py of 0.33, update_from_output",
    ),
}

# -- memory

V2_RUNNER_FOR_DENSE_MODELS = Rule(
    since="0.25.1",
    meaning="dense models without an encoder run under Model Runner V2",
    source="vLLM pull request 49233",
)
V2_RUNNER = Rule(
    since="0.29.0",
    meaning="all models run under Model Runner V2, which estimates what its CUDA graphs take",
    source="release notes of 0.29.0; the estimate before it was 0: vLLM issue 49224",
)
V2_RUNNER_ROUTES_DUMMY_TOKENS = Rule(
    since="0.30.0",
    meaning="Model Runner V2 sends its profiling run's tokens to experts",
    source="vLLM pull request 57270, taken to be in 0.30",
)
V2_RUNNER_PROFILES_SAMPLING = Rule(
    since="0.33.0",
    meaning="Model Runner V2's profiling run also samples with top-k and top-p, whose copies of the logits "
    "count in the peak",
    source="vllm/v1/worker/gpu/model_runner.py of 0.33, _dummy_sampler_run",
)
SAMPLER_WITHOUT_SORT = Rule(
    since="0.17.0",
    meaning="the profiling run's sampler does not sort the logits",
    source="start-up logs: Qwen3-14B takes 5.64 GiB at 0.16, 2.23 GiB at 0.17",
)
NVLINK_BUFFERS = Rule(
    since="0.18.0",
    meaning="all-reduces over NVLink have buffers of their own",
    source="start-up logs of 0.15 to 0.19",
)
CUDA_GRAPHS_IN_BUDGET = Rule(
    since="0.21.0",
    meaning="CUDA graphs are estimated and subtracted from the memory budget; earlier, they were added to it",
    source="vllm/v1/worker/gpu_worker.py",
)
NULL_BLOCK_BESIDE_ONE_REQUEST = Rule(
    since="0.21.0",
    meaning="the server starts only if a request of max_model_len fits beside the null block",
    source="vllm/v1/core/kv_cache_utils.py",
)
LOGS_TOKENS_OF_WHOLE_REQUESTS = Rule(
    since="0.20.0",
    meaning="a start-up log's 'GPU KV cache size' is read as the tokens that full-length requests hold",
    source="start-up logs of 0.19 and 0.20 with a hybrid model",
)
KV_CACHE_SIZE_BY_CONCURRENCY = Rule(
    since="0.21.0",
    meaning="'GPU KV cache size' is what full-length requests hold; earlier, the blocks of one group of layers",
    source="vllm/v1/core/kv_cache_utils.py, get_kv_cache_capacity",
)
BATCH_IN_FLIGHT_PER_STAGE = Rule(
    since="0.24.0",
    meaning="a window's blocks are counted for a batch in flight per pipeline stage, with one more under asynchronous "
    "scheduling; earlier, for one batch",
    source="VllmConfig.max_in_flight_tokens of 0.32, one batch in 0.19; the release in between is taken to be 0.24",
)
UNEQUAL_BLOCKS_AS_READ = Rule(
    since="0.32.0",
    meaning="caches of layers with states are laid out as in the source",
    source="vLLM 0.32; earlier releases were not read",
)
OLDER_THAN_LOGS = Rule(
    until="0.11.0", meaning="no start-up log shows the memory in use", source="public start-up logs of 0.11 to 0.20"
)
NEWER_THAN_LOGS = Rule(
    since="0.20.1", meaning="no start-up log shows the memory in use", source="public start-up logs of 0.11 to 0.20"
)

# -- formats

MODELOPT_KV_CACHE = Rule(
    since="0.14.0",
    meaning="the KV-cache format that a checkpoint of NVIDIA Model Optimizer declares is used",
    source="vllm/utils/torch_utils.py, resolve_kv_cache_dtype_string",
)
MODELOPT_NVFP4_KV_CACHE = Rule(
    since="0.20.0",
    meaning="the same if it declares NVFP4",
    source="vllm/utils/torch_utils.py, resolve_kv_cache_dtype_string",
)
COMPRESSED_TENSORS_KV_CACHE = Rule(
    since="0.15.0",
    meaning="the KV-cache format that a compressed-tensors checkpoint declares is used",
    source="vllm/model_executor/layers/attention",
)
EXPLICIT_KV_CACHE_WINS = Rule(
    since="0.22.0",
    meaning="--kv-cache-dtype wins over what a compressed-tensors checkpoint declares; over Model Optimizer it always "
    "did",
    source="vllm/utils/torch_utils.py, resolve_kv_cache_dtype_string",
)
DESC_ACT = Rule(
    until="0.32.0",
    meaning="GPTQ checkpoints with desc_act=True can be loaded; an int32 per input column is kept",
    source="vllm/model_executor/layers/quantization of 0.32",
)

# -- step times

FUSED_NORMS_OVER_ALL_HEADS = Rule(
    since="0.27.0",
    meaning="norms of queries and keys over all heads are one kernel under tensor parallelism",
    source="MiniMaxText01RMSNormTP.forward_qkv of 0.27 and 0.32, not yet in 0.19",
)
SLOWER_EXPERTS = Rule(
    until="0.15.0",
    meaning="a mixture's steps take far longer than its kernels",
    source="measured runs of 0.11 to 0.14; the reason is not known",
)


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    return {name: value for name, value in globals().items() if isinstance(value, Rule)} | SCHEDULER_RULES


def check_known_memory(vllm_version: str) -> None:
    """Raise ValueError for a release too old for the memory model."""
    if precedes(vllm_version, OLDEST_RELEASE):
        raise ValueError(
            f"vllm_version is {release_number(vllm_version)}; memory is known from {OLDEST_RELEASE} on; give a later "
            "release"
        )


def check_simulated(vllm_version: str) -> None:
    """Raise ValueError for a release whose scheduler is not simulated."""
    if not ENGINE_V1.holds_in(vllm_version):
        raise ValueError(
            f"vllm_version is {release_number(vllm_version)}, which schedules with engine V0; engine V1 is simulated, "
            f"the default from {ENGINE_V1.since} on; give a later release ('headcount memory' knows older)"
        )


def newer_than_known(vllm_version: str) -> str | None:
    """What is said of a release whose own rules are not known yet."""
    if not precedes(NEWEST_RELEASE, vllm_version):
        return None
    return f"{release_number(vllm_version)} is newer than any known release: the rules of {NEWEST_RELEASE} apply"
