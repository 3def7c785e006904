"""Step times from the shape of the model, with the share of the GPU's peaks that vLLM reaches."""

import math
from collections import Counter
from dataclasses import replace
from functools import cache, partial

import numpy as np

from kvcache.memory.placement import parallelism_of
from kvcache.memory.terms import uses_v2_runner
from kvcache.models.catalog import find_gpu
from kvcache.releases import SLOWER_EXPERTS, SORTS_TO_SAMPLE
from kvcache.shape.architecture import Architecture
from simulator.engines.engines import SGLANG, engine_of
from simulator.engines.interconnect import linked
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.compilation import FULL, FULL_DECODE_ONLY, NONE, PIECEWISE
from simulator.latency.adapters import AdapterCosts, adapter_costs
from simulator.latency.adapters import assumptions as adapter_assumptions
from simulator.latency.attention import attention_over
from simulator.latency.attention_cost import AttentionCost, add_attention
from simulator.latency.covariance import covariance_of
from simulator.latency.drafting import Drafting, drafted_by_all_tokens, drafting
from simulator.latency.encoder import EncoderCosts, encoder_costs
from simulator.latency.evidence import SCALED_TPOT, SCALED_TTFT, SGLANG_TPOT, SGLANG_TTFT, unmeasured_parts
from simulator.latency.expert_kernels import ExpertKernel, expert_kernel
from simulator.latency.gpu_constants import GENERAL, MEASURED, Constants, constants_for, measured_text
from simulator.latency.measured import is_measured, scheme_of
from simulator.latency.model import (
    ADAPTERS,
    COMPUTE,
    ERROR_SEQUENCES,
    FIXED_OVERHEAD,
    HOST,
    KV_READ,
    LatencyModel,
    LogError,
    ServedModel,
)
from simulator.latency.passes import pass_over
from simulator.latency.profile import (
    STEP_SCALE,
    LatencyProfile,
    profile_assumptions,
    range_warnings,
    with_terms,
)
from simulator.latency.shared_experts import assumptions as expert_assumptions
from simulator.latency.shared_experts import is_wide, shared_experts, shared_mlp
from simulator.latency.states import scan_token_s, states_s
from simulator.latency.step_time import FloatArray, StepTimes
from simulator.latency.terms import (
    Causes,
    Rank,
    add,
    expert_format,
    launches,
    sampling,
    times,
)

OLD_EXPERTS, FITTED_GPU = "old-experts", "h200-sxm"  # MoE models before vLLM 0.15, and where runs of them are
PIECEWISE_TOKENS = 512  # of the longest step with prefill that piecewise CUDA graphs cover by default
# Of GPUs that no fit to runs has seen, layers with states, pipelines, drafts: as of A100, L40S (constants/ampere, ada).
KERNELS_ONLY_TPOT = LogError(deployment=0.20, residual=0.06)
KERNELS_ONLY_TTFT = LogError(deployment=0.28, residual=0.12)
# What Model Runner V2 takes to launch a layer's kernels one by one, over V1: of an A100's server 0.97 ms a layer of
# Qwen3-8B in 0.26 (vLLM issue 42058), 0.5 ms of Qwen3-14B in 0.9.1 (issue 20469). Part of it may be their processors.
_EAGER_UNDER_V2 = 2.1
_KERNELS_OF_A_LAYER = 10  # whose launches take as long as those of a layer with attention and experts, see `launches`
FULL_ATTENTION_WINDOW = 1  # of StepTimes where no layer has a window


def latency_model(
    served: ServedModel, *, constants: Constants | None = None, profile: LatencyProfile | None = None
) -> LatencyModel:
    """The model of one deployment; `constants` None stands for those of its GPU, which a `profile` changes.

    The time of a step under pipeline parallelism is that of its way through all stages: every layer once, as many in
    each stage as in the longest; the hand-over between stages; what the host does and waits for, once a stage. The
    embedding and the language-model head count once. A stage takes the next step after its part of that time, an
    equal one.

    Raises HeadcountError where vLLM would refuse the split over ranks, or for another GPU's profile.
    """
    if constants is None and profile is None:
        return _shipped(served)
    known = constants if constants is not None else constants_for(served.gpu)
    if profile is not None:
        return _calibrated(served, known, profile)
    known = known.on_host(served.args.host_speed)
    rank = rank_of(served, known)
    drafts = drafting(rank)
    costs, images = adapter_costs(rank), encoder_costs(rank) or EncoderCosts()
    by_tokens = add(_by_tokens(rank), drafts.by_tokens, {ADAPTERS: costs.by_tokens} if costs else {})
    full = add_attention(attention_over(rank, windowed=False), drafts.attention)
    caches = full, add_attention(attention_over(rank, windowed=True), drafts.chosen)
    by_sampled = add(_by_sampled(rank, sum(cache.sequence_s for cache in caches)), drafts.by_sampled)
    kernel = kernel_of(rank)
    unmeasured = unmeasured_parts(served, rank.scheme, known, kernel)
    tpot_log_error, ttft_log_error, open_ttft_log_error = _log_errors(
        served,
        known,
        is_scaled=bool(unmeasured),
        is_from_tables=kernel is not None and kernel.is_from_tables,
        shares_widely=is_wide(rank),
    )
    return LatencyModel(
        name="physical",
        step_times=_step_times(rank, by_tokens, by_sampled, caches, drafts, adapters=costs, images=images),
        assumptions=(*_assumptions(rank), *drafts.assumptions, *adapter_assumptions(rank)),
        is_measured=known.is_measured and not unmeasured,
        unmeasured=unmeasured,
        tpot_log_error=tpot_log_error,
        ttft_log_error=ttft_log_error,
        open_ttft_log_error=open_ttft_log_error,
        causes_by_tokens=by_tokens,
        causes_by_sampled=by_sampled,
        causes_by_all_tokens=partial(_by_all_tokens, rank),
        data_parallel_size=served.args.data_parallel_size,
        context_cause=COMPUTE if any(cache.is_compute_bound for cache in caches) else KV_READ,
    )


def _log_errors(
    served: ServedModel, known: Constants, *, is_scaled: bool, is_from_tables: bool, shares_widely: bool
) -> tuple[LogError, LogError, LogError]:
    """Of TPOT, TTFT, users' TTFT, as stated with the constants; no less than KERNELS_ONLY without a fit to runs."""
    kind = spread_kind(served)
    tpot, ttft = known.log_errors(kind)
    arch = served.architecture
    is_like_runs = arch.state_space is None and not arch.is_sparse and served.args.pipeline_parallel_size == 1
    is_fitted = known.covariance != GENERAL and is_like_runs and not is_from_tables
    has_adapters = served.args.lora is not None
    is_unlike = (
        shares_widely
        or served.args.speculation is not None
        or has_adapters
        or served.args.decode_context_parallel_size > 1
    )
    of_tpot = [KERNELS_ONLY_TPOT] if not is_fitted or is_unlike else []
    of_ttft = [] if is_fitted and not has_adapters else [KERNELS_ONLY_TTFT]
    if engine_of(served.args) == SGLANG:
        of_tpot, of_ttft = [*of_tpot, SGLANG_TPOT], [*of_ttft, SGLANG_TTFT]
    if is_scaled:
        of_tpot, of_ttft = [*of_tpot, SCALED_TPOT], [*of_ttft, SCALED_TTFT]
    if kind == OLD_EXPERTS and kind not in known.log_errors_by_kind:  # on other GPUs they err no less
        of_old = constants_for(find_gpu(FITTED_GPU)).log_errors(kind)
        of_tpot, of_ttft = [*of_tpot, of_old[0]], [*of_ttft, of_old[1]]

    def widest(error: LogError, least: list[LogError]) -> LogError:
        found = max(error, *least, key=lambda each: each.half_width) if least else error
        own, shorter = (
            max(each.log_shorter_at(ERROR_SEQUENCES) for each in some) for some in ([found], [error, *least])
        )
        return found if shorter <= own else replace(found, shorter_sds=shorter / found.total)

    return widest(tpot, of_tpot), widest(ttft, of_ttft), widest(known.open_ttft_log_error(kind), of_ttft)


def _shipped(served: ServedModel) -> LatencyModel:
    """The model under its GPU's constants, which can be drawn from what is known of their errors."""
    known = constants_for(served.gpu)
    found = latency_model(served, constants=known)
    common = found.tpot_log_error.deployment  # is drawn, of TTFT's too; the rest of that stays an error

    def beyond(error: LogError) -> LogError:
        return replace(error, deployment=math.sqrt(max(error.deployment**2 - common**2, 0.0)))

    tpot, ttft = replace(found.tpot_log_error, deployment=0.0), beyond(found.ttft_log_error)
    of_users = beyond(found.ttft_log_error_of(in_step=False))

    def sampler(rng: np.random.Generator) -> LatencyModel:
        scale = {STEP_SCALE: rng.normal(0.0, common)}
        drawn = latency_model(served, constants=with_terms(covariance_of(known).draw(known, rng), scale))
        return replace(drawn, tpot_log_error=tpot, ttft_log_error=ttft, open_ttft_log_error=of_users)

    return replace(found, sampler=sampler)


def _calibrated(served: ServedModel, base: Constants, profile: LatencyProfile) -> LatencyModel:
    """The model under a profile's constants, with what lies outside the profile."""
    found = range_warnings(profile, served, base)
    rows = profile_assumptions(profile) + tuple(("outside the latency profile", text, profile.name) for text in found)

    def at(values: FloatArray | None = None) -> LatencyModel:
        fitted = latency_model(served, constants=profile.constants(base, values))
        return replace(
            fitted,
            assumptions=(*fitted.assumptions, *rows),
            is_measured=True,
            unmeasured=(),
            calibrated=True,
            tpot_log_error=profile.tpot_log_error,
            ttft_log_error=profile.ttft_log_error,
            open_ttft_log_error=None,
            warnings=found,
            ranges={name: (known.low, known.high) for name, known in profile.ranges.items()},
        )

    return replace(at(), sampler=lambda rng: at(profile.draw(rng)))


def rank_of(served: ServedModel, constants: Constants) -> Rank:
    """One rank of a deployment, with its release's constants, those of its experts' kernel, and its server's links."""
    served = replace(served, gpu=linked(served.gpu, served.args.interconnect))
    scheme = scheme_of(served)
    parallelism = parallelism_of(served.args, scheme, served.gpu)
    known = constants.in_release(served.args.vllm_version)
    rank = Rank(served=served, scheme=scheme, parallelism=parallelism, constants=known)
    kernel = kernel_of(rank)
    return rank if kernel is None else replace(rank, constants=kernel.applied(known))


def kernel_of(rank: Rank) -> ExpertKernel | None:
    """The kernel of its experts; None without any."""
    is_plain = "experts" in rank.scheme.spared
    return expert_kernel(rank.served, rank.scheme, "bf16" if is_plain else expert_format(rank.scheme))


def _by_tokens(rank: Rank) -> Causes:
    return pass_over(rank, np.arange(rank.args.max_num_batched_tokens + 1, dtype=np.float64))


def _by_all_tokens(rank: Rank, tokens: FloatArray) -> Causes:
    """What depends on the tokens of all attention-parallel ranks: nothing where there is one."""
    arch = rank.arch
    if rank.args.data_parallel_size == 1 or not arch.is_moe:
        return {}
    held, mixture = next((held, held.experts) for held in arch.layers if held.experts is not None)
    own = times(arch.num_moe_layers, shared_experts(rank, tokens, held, mixture))
    if rank.parallelism.pools_dense:
        dense = Counter(held for held in arch.layers if held.experts is None and held.intermediate_size)
        own = add(own, *(times(count, shared_mlp(rank, tokens, held)) for held, count in dense.items()))
    return add(own, drafted_by_all_tokens(rank, tokens))


def _shared_s(rank: Rank, tokens: FloatArray) -> FloatArray:
    return sum(_by_all_tokens(rank, tokens).values(), start=np.zeros_like(tokens))


def _by_sampled(rank: Rank, attention_sequence_s: float) -> Causes:
    """Of a step by the sequences that get a token: those that decode, but for the last chunks of prompts."""
    sampled = np.arange(rank.args.max_num_seqs + 1, dtype=np.float64)
    logits = np.maximum(sampled * rank.args.decode_width, 1.0)  # also of a prompt's unfinished chunk, as in vLLM
    causes = sampling(rank, logits)
    if rank.args.speculation is not None:  # the token after the drafts is sampled by itself
        causes = add(causes, {FIXED_OVERHEAD: np.full_like(sampled, rank.constants.sampling_start_s)})
    causes = add(causes, states_s(rank, sampled), {FIXED_OVERHEAD: sampled * attention_sequence_s})
    host_s = 0.0 if rank.args.async_scheduling else rank.constants.host_sequence_s
    return add(causes, {HOST: sampled * (rank.constants.step_gap_sequence_s + host_s)})


def _stream_sequence_s(rank: Rank) -> float:
    """What API servers take to stream the tokens of a step, for each sequence of a rank; 0 where it is not known.

    They have no queue of their own: a step takes as long as they take for its tokens, so that clients get as many
    tokens/s as from servers that buffer.
    """
    if not isinstance(rank.args, EngineArgs):
        return 0.0
    return rank.constants.stream_token_s * rank.args.data_parallel_size / rank.args.api_server_count


def _step_times(
    rank: Rank,
    by_tokens: Causes,
    by_sampled: Causes,
    caches: tuple[AttentionCost, AttentionCost],
    drafts: Drafting,
    *,
    adapters: AdapterCosts | None,
    images: EncoderCosts,
) -> StepTimes:
    constants, settings = rank.constants, rank.args
    full, windowed = caches
    table = np.sum(list(by_tokens.values()), axis=0)
    token_s = full.prefill_token_s + windowed.prefill_token_s + scan_token_s(rank)
    launched = rank.layer_weight * sum(map(cache(partial(launches, rank)), rank.arch.layers))
    launched += adapters.launches / _KERNELS_OF_A_LAYER if adapters else 0.0
    launch_s = constants.eager_layer_s * launched
    mode = settings.cudagraph_mode
    by_v2 = _EAGER_UNDER_V2 if uses_v2_runner(rank.arch, settings.vllm_version) else 1.0
    eager_s = by_v2 * constants.eager_decode_layer_s
    decode_layer_s = {NONE: eager_s, PIECEWISE: constants.piecewise_decode_layer_s}.get(mode, 0.0)
    # What of a step's launches is left of one with prefill, up to the longest that graphs cover.
    of_prefill = {NONE: 1.0, FULL_DECODE_ONLY: 1.0, FULL: 0.0}.get(mode, constants.piecewise_eager_share)
    longest = settings.max_cudagraph_capture_size or PIECEWISE_TOKENS
    decode_launch_s = decode_layer_s * launched
    host_s = max(rank.stages * constants.host_base_s, decode_launch_s)
    in_step = settings.async_scheduling  # else the GPU waits while the host prepares the next step
    return StepTimes(
        decode=table,
        prefill=table + token_s * np.arange(len(table)),
        floor=np.where(np.arange(len(table)) <= longest, of_prefill, 1.0) * launch_s,
        sampling=np.sum(list(by_sampled.values()), axis=0),
        shared=partial(_shared_s, rank),
        decode_base_s=full.start_s + windowed.start_s,
        context_s=full.context_s,
        window=window_class(rank.arch)[1],
        window_context_s=windowed.context_s,
        prefill_s=full.prefill_s,
        window_prefill_s=windowed.prefill_s,
        host_base_s=host_s + drafts.host_s if in_step else decode_launch_s,
        host_sequence_s=rank.stages * constants.host_sequence_s + drafts.host_sequence_s if in_step else 0.0,
        stream_sequence_s=_stream_sequence_s(rank),
        adapter_s=adapters.adapter_s if adapters else 0.0,
        adapter_load_s=adapters.load_s if adapters else 0.0,
        adapter_read_s=adapters.read_s if adapters else 0.0,
        encoder_floor_s=images.floor_s,
        encoder_start_s=images.start_s,
        encoder_patch_s=images.patch_s,
        encoder_pair_s=images.pair_s,
        gap_s=rank.stages * (constants.step_gap_s + (0.0 if in_step else constants.host_base_s)),
        ingress_request_s=constants.ingress_request_s,
        ingress_token_s=constants.ingress_token_s,
        ingress_s=constants.ingress_s,
    )


def spread_kind(served: ServedModel) -> str:
    """By which of the constants' errors a deployment goes: by what is known before it is measured."""
    kind = "dense"
    if served.architecture.is_moe:
        kind = "dp-experts" if served.args.data_parallel_size > 1 else "experts"
        kind = OLD_EXPERTS if SLOWER_EXPERTS.holds_in(served.args.vllm_version) else kind
    return f"{MEASURED}{kind}" if is_measured(served) else kind


def _give_or_take(constants: Constants, name: str) -> str:
    """One standard deviation of a constant, key by key; nothing where none is known."""
    value, sds = getattr(constants, name), covariance_of(constants).sd
    known = {key: sd for (own, key), sd in sds.items() if own == name and (key is None or key in value)}
    found = [f"{f'{key} ' if key else ''}±{math.expm1(sd):.0%}" for key, sd in known.items()]
    return f" ({', '.join(found)})" if found else ""


def window_class(arch: Architecture) -> tuple[int, int]:
    """How many layers read a part of the context, with its most tokens: the mean of windows that differ."""
    chosen = tuple(layer.attention.topk for layer in arch.layers if layer.attention and layer.attention.topk)
    windows = chosen if arch.is_compressed else arch.windows or chosen
    return len(windows), round(float(np.mean(windows))) if windows else FULL_ATTENTION_WINDOW


def _assumptions(rank: Rank) -> tuple[tuple[str, str, str], ...]:
    constants, arch, gpu = rank.constants, rank.arch, rank.gpu
    where = f"simulator/latency/constants/{constants.name}.toml"
    rows = [
        (name.removesuffix("_s").replace("_", " "), value + _give_or_take(constants, name), source)
        for name, (value, source) in constants.sources.items()
        if (arch.is_moe or "expert" not in name) and (arch.state_space is not None or not name.startswith("state_"))
    ]
    if arch.state_space is not None:
        why = "kernel times of gated delta net and KDA; no measured run of a model with linear attention exists"
        rows.append(("SSM / linear-attention layers", f"{arch.state_space.kind}: not measured in a server", why))
    if arch.is_compressed:
        why = "kernel times of DeepSeek-V4 on H200 and B200; no measured run of compressed attention exists"
        rows.append(("compressed attention", "not measured in a server", why))
    elif arch.indexer is not None:
        why = "kernel times of DeepSeek-V3.2 and GLM-5 on H200 and B200; no measured run of sparse attention exists"
        rows.append(("sparse attention", "not measured in a server", why))
    if rank.stages > 1:
        why = (
            "every stage takes as long as the longest, with transfers over the link; no measured run of a pipeline "
            "exists"
        )
        rows.append(("pipeline stages", f"{rank.stages}: not measured in a server", why))
    if (context_ranks := rank.args.decode_context_parallel_size) > 1:
        why = "collectives of queries and results over the link; one public run each way agrees"
        rows.append(("decode context parallelism", f"{context_ranks} ranks: not measured in a server", why))
    rows += expert_assumptions(rank)
    kernel = kernel_of(rank)
    row = None if kernel is None else kernel.assumption()
    rows += [] if row is None else [row]
    if arch.router_fp32:
        found = "as TF32" if rank.args.allows_tf32 else "on CUDA cores"
        rows.append(("router in fp32", found, "VLLM_FLOAT32_MATMUL_PRECISION decides; times of GB200, or of an H200"))
    if rank.args.tensor_parallel_size > 1 and gpu.interconnect == "pcie" and gpu.name != "l40s":
        why = "kernel times of all-reduces over 2, 4, 8 L40S; they grow far more than those of a ring"
        rows.append(("all-reduces over PCIe", rank.args.interconnect or "as measured on L40S", why))
    if not constants.is_measured:
        found = f"not measured in runs on {gpu.name}: {measured_text(gpu)}"
        rows.append(("step times", found, f"shares of its peaks as in {where}"))
    if len(set(arch.windows)) > 1:
        rows.append(("attention windows", f"one of {window_class(arch)[1]} tokens", "mean over the windowed layers"))
    if arch.attention is not None and arch.attention.chunked:
        rows.append(("chunked attention", "timed as a sliding window of the chunk's length", "an upper bound"))
    if SORTS_TO_SAMPLE.holds_in(rank.args.vllm_version):
        found = "sorts the vocabulary: top-p or top-k" if rank.args.sorts_to_sample else "without top-p and top-k"
        rows.append(("sampling", found, "--top-p-sampling says which; both sort it in this release"))
    dtype = rank.scheme.gemm_dtype_on(gpu)
    rows.append(("matrix multiplies", f"{rank.scheme.name} weights, computed in {dtype}", rank.scheme.source))
    return tuple(rows)
