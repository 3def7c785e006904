"""What a memory budget rests on, row by row: name, value, source."""

from collections.abc import Iterator

from kvcache.layout.kv_layout import has_unequal_blocks
from kvcache.memory.adapters import SOURCE as ADAPTERS
from kvcache.memory.interval import CONDITIONS, LEVEL, shipped_residuals
from kvcache.memory.placement import Placement, Stage
from kvcache.memory.terms import FIT_SOURCE, GIB, profile_source
from kvcache.releases import NEWEST_RELEASE, UNEQUAL_BLOCKS_AS_READ, newer_than_known
from kvcache.shape.parameters import stage_tensors

Assumption = tuple[str, str, str]

STARTS = "whether vLLM starts"  # the name of the row where the interval leaves it open
STATE_SOURCE = "vLLM 0.32 models/config.py (MambaModelConfig): align with prefix caching, else none"


def assumptions(placed: Placement, stage: Stage) -> tuple[Assumption, ...]:
    """What a budget's terms rest on, which of it is a guess."""
    gib = {key: f"{value / GIB:.2f} GiB" for key, value in vars(stage).items()}
    counted = f"counted tensor by tensor; format {placed.scheme.name}: {placed.scheme.source}"
    graphs = FIT_SOURCE if stage.cuda_graph_bytes else "not set aside by this version or mode"
    if stage.graph_pass_bytes:
        graphs += f"; {gib['graph_pass_bytes']} of it that no graph takes: vLLM issue 50780"
    rows = [
        ("total memory", f"{placed.gpu.memory_bytes / GIB:.2f} GiB", placed.gpu.source["memory_bytes"]),
        ("weights", gib["weights_bytes"], counted),
        ("activation peak", gib["activation_peak_bytes"], profile_source(placed.arch, placed.settings.vllm_version)),
        ("non-torch", gib["non_torch_bytes"], FIT_SOURCE),
        ("CUDA graphs", gib["cuda_graph_bytes"], graphs),
    ]
    lora = placed.settings.lora
    if lora is not None:
        slots = f"{lora.max_loras:,} of rank {lora.max_lora_rank}: {gib['adapter_bytes']}"
        rows.append(("LoRA slots", slots, ADAPTERS))
    if placed.parallelism.tensor_parallel_size > 4:
        rows.append(("non-torch beyond 4 ranks", gib["non_torch_bytes"], "a guess: start-up logs exist up to TP 4"))
    if "gpu" in placed.unmeasured:
        rows.append(("overheads off H100", "as on H100 80GB", "the fit has no start-up log of this GPU"))
    rows += _format_assumptions(placed)
    rows += _draft_assumptions(placed)
    if placed.layout.mamba_cache_mode is not None:
        rows.append(("SSM / linear-attention state cache", _state_cache(placed), STATE_SOURCE))
    if (newer := newer_than_known(placed.settings.vllm_version)) is not None:
        rows.append(("vLLM release", NEWEST_RELEASE, newer))
    if has_unequal_blocks(placed.layout.groups) and not UNEQUAL_BLOCKS_AS_READ.holds_in(placed.settings.vllm_version):
        why = "earlier releases may lay out such caches differently"
        rows.append(("KV-cache layout", f"as in vLLM {UNEQUAL_BLOCKS_AS_READ.first}", why))
    return (*rows, *placed.arch.assumptions)


def _draft_assumptions(placed: Placement) -> Iterator[Assumption]:
    drafter = placed.drafter
    if drafter is None:
        return
    kept = placed.layout.draft_block_bytes / placed.layout.block_size / 1024
    held = f"{placed.drafter_bytes / GIB:.2f} GiB of the weights, {kept:.1f} KiB of each token's KV cache"
    yield (
        "drafter's memory",
        held,
        f"counted tensor by tensor: {drafter.arch.name}; no start-up log with speculative decoding",
    )
    yield from drafter.assumptions


def _format_assumptions(placed: Placement) -> Iterator[Assumption]:
    scheme = placed.scheme
    if scheme.asked_as is not None:
        why = "the checkpoint's own format of that kind" if scheme.is_native else "the usual format of that name"
        yield ("weight format", f"{scheme.asked_as}: {scheme.name}", why)
    listed = {own for layer in placed.arch.layers for _, own in layer.formats} if scheme.is_listed else set()
    if listed - {"none"}:
        others = sorted(listed - {"none"}) + ["16 bits"] * ("none" in listed)
        yield ("weight formats", ", ".join([scheme.name, *others]), "by module, as the checkpoint lists them")
    stages = range(placed.parallelism.pipeline_parallel_size)
    tensors = (tensor for stage in stages for tensor in stage_tensors(placed.arch, placed.parallelism, stage))
    cut = next((tensor for tensor in tensors if scheme.cuts_groups(tensor)), None)
    if cut is not None:
        why = f"one rank's {cut.component} matrix has {cut.cols:,} inputs; vLLM refuses files that are not widened"
        yield (f"{scheme.name} groups", f"matrices widened to whole groups of {scheme.group_size}", why)


def _state_cache(placed: Placement) -> str:
    states = max(group.states_per_request for group in placed.layout.groups)
    return f"mode {placed.layout.mamba_cache_mode}: at most {states} per request and layer"


def interval_assumptions(
    low: int, high: int, unmeasured: tuple[str, ...], override: int | None, needed: int
) -> tuple[Assumption, ...]:
    """What the interval on the blocks rests on; nothing where their number is given."""
    if override is not None:
        return ()
    beyond = "; ".join(CONDITIONS[condition] for condition in unmeasured)
    source = f"wider than measured: {beyond}" if beyond else shipped_residuals().measured.source
    rows = [(f"KV blocks, {LEVEL:.0%} interval", f"{low:,}–{high:,}", source)]
    if low < needed <= high:
        rows.append((STARTS, "uncertain", f"one request of max_model_len takes {needed:,} blocks"))
    return tuple(rows)
