"""Our KV-cache layouts compared with vLLM's own, from the same layers with the same bytes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from conformance.components.cases.kv_cache_cases import KVCacheCase, random_case
from conformance.components.probes import FOLDER
from conformance.models import catalog_entries
from conformance.probing import Record, answers
from kvcache.layout.kv_layout import KVGroup, KVLayout
from kvcache.models.config.reader import from_config

PROBE = "kv_cache_probe"
COMPARED = (
    "block_size", "mamba_cache_mode", "page_size_bytes", "groups", "num_blocks", "max_concurrency", "kv_cache_tokens",
)  # fmt: skip
_CATALOG_BYTES = 60 * 2**30


@dataclass(frozen=True, kw_only=True)
class KVCacheDifference:
    """A case that differs, with ours and vLLM's in each field that does."""

    name: str
    case: dict[str, Any]
    fields: dict[str, tuple[Any, Any]]


@dataclass(kw_only=True)
class KVCacheComparison:
    """What was compared, with every difference."""

    vllm_version: str = ""
    equal: int = 0
    too_large: int = 0  # of those equal: both say that one request does not fit
    refused: int = 0  # of those equal: both refuse the settings
    kinds: Counter[str] = field(default_factory=Counter)  # equal layouts by what their groups keep
    not_built: dict[str, str] = field(default_factory=dict)  # name → why vLLM cannot build the model
    differences: list[KVCacheDifference] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def catalog_cases(tensor_parallel_sizes: Sequence[int] = (1, 2, 4, 8)) -> list[KVCacheCase]:
    """Every catalog model's text model, as vLLM builds it, at each size that divides its heads."""
    return [
        case
        for entry in catalog_entries()
        for tp in tensor_parallel_sizes
        for case in model_cases(entry["name"], entry["config"], tp)
    ]


def model_cases(name: str, config: dict[str, Any], tensor_parallel_size: int) -> list[KVCacheCase]:
    """A model as vLLM builds it from its config; with states, also without prefix caching."""
    architecture = from_config(config, name=name)
    if architecture.num_attention_heads % tensor_parallel_size:
        return []
    heads = {layer.attention.num_kv_heads for layer in architecture.layers if layer.attention}
    if not architecture.is_mla and any(each % tensor_parallel_size and tensor_parallel_size % each for each in heads):
        return []
    text = config.get("text_config", config.get("llm_config", config))
    return [
        KVCacheCase(
            name=f"{name}, TP {tensor_parallel_size}{'' if caching else ', without prefix caching'}",
            architecture=architecture,
            config=text,
            tensor_parallel_size=tensor_parallel_size,
            kv_cache_dtype="fp8_ds_mla" if architecture.is_compressed else "auto",
            enable_prefix_caching=caching,
            max_model_len=min(8192, architecture.max_position_embeddings),
            available_bytes=(_CATALOG_BYTES,),
        )
        for caching in ((True, False) if architecture.state_space else (True,))
    ]


def random_cases(seed: int, count: int) -> list[KVCacheCase]:
    """Cases of that seed."""
    return [random_case(seed, number) for number in range(count)]


def check_kv_cache(python: Path, cases: Sequence[KVCacheCase]) -> KVCacheComparison:
    """Lay out every case here, and by the vLLM of `python`.

    Raises HeadcountError where vLLM cannot be run there.
    """
    found = KVCacheComparison()
    lines = [case.to_json() for case in cases]
    said = answers(python, PROBE, lines, failure="vLLM could not be run", folder=FOLDER)
    for case, theirs in zip(cases, said, strict=True):
        compare(found, case, theirs)
    return found


def compare(found: KVCacheComparison, case: KVCacheCase, theirs: Record) -> None:
    """Enter one case with what the probe says of it."""
    found.vllm_version = theirs["vllm_version"]
    refused = theirs.get("refused")
    if refused is not None and case.config is not None and not _is_too_large(refused):
        found.not_built[case.name] = refused
        return
    ours = our_layout(replace(case, vllm_version=found.vllm_version))
    differing = _differing(ours, theirs)
    if differing:
        fields = {name: (ours.get(name), theirs.get(name)) for name in differing}
        found.differences.append(KVCacheDifference(name=case.name, case=case.to_json(), fields=fields))
        return
    found.equal += 1
    if refused is not None:
        found.too_large += _is_too_large(refused)
        found.refused += not _is_too_large(refused)
        return
    found.kinds[_kinds_of(ours["groups"])] += 1


def our_layout(case: KVCacheCase) -> Record:
    """What the probe would say if vLLM agreed with us."""
    try:
        layout = case.layout()
    except ValueError as error:
        return {"refused": str(error)}
    stages = range(case.pipeline_parallel_size)
    available = list(case.available_bytes)
    if case.num_gpu_blocks_override is not None:
        available = [case.num_gpu_blocks_override * layout.block_bytes(stage) for stage in stages]
    per_request = layout.blocks_per_request(case.max_model_len, case.max_in_flight_tokens)
    if any((per_request + 1) * layout.block_bytes(stage) > available[stage] for stage in stages):
        return {"refused": "too large"}
    num_blocks = case.num_gpu_blocks_override or layout.num_blocks(available)
    concurrency = layout.max_concurrency(num_blocks, case.max_model_len, case.max_in_flight_tokens)
    return {
        "block_size": layout.block_size // case.decode_context_parallel_size,
        "mamba_cache_mode": layout.mamba_cache_mode or "none",
        "page_size_bytes": sorted({page for group in layout.groups for page in group.page_bytes}),
        "groups": [_group_json(group, layout, case) for group in layout.groups],
        "num_blocks": num_blocks,
        "max_concurrency": concurrency,
        "kv_cache_tokens": int(concurrency * case.max_model_len),
    }


def _group_json(group: KVGroup, layout: KVLayout, case: KVCacheCase) -> Record:
    size: int = (group.block_size or layout.block_size) // case.decode_context_parallel_size
    if group.is_state and layout.mamba_cache_mode == "none":
        size = case.max_model_len
    return {
        "layers": list(group.layers),
        "page_bytes": list(group.page_bytes),
        "kind": "state" if group.is_state else "chunked" if group.chunked else "attention",
        "window": group.window,
        "block_size": size,
        "blocks_per_request": group.blocks_per_request(
            case.max_model_len, case.max_in_flight_tokens, layout.block_size
        ),
    }


def _differing(ours: Record, theirs: Record) -> list[str]:
    if "refused" in ours and "refused" in theirs:
        # A case may have two faults, and vLLM names another first; that one request is too large we say last.
        is_last = _is_too_large(ours["refused"]) and not _is_too_large(theirs["refused"])
        return ["refused"] if is_last else []
    if "refused" in ours or "refused" in theirs:
        return ["refused"]
    return [name for name in COMPARED if ours[name] != theirs[name]]


def _is_too_large(refused: str) -> bool:
    return refused == "too large" or "serve at least one request" in refused or "No available memory" in refused


def _kinds_of(groups: Sequence[Record]) -> str:
    """What a layout's groups keep, each kind once."""
    windowed = [
        group["kind"] if group["kind"] != "attention" else "window" if group["window"] else "full" for group in groups
    ]
    return " + ".join(dict.fromkeys(sorted(windowed)))
