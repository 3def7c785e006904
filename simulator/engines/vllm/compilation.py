"""vLLM's `--compilation-config`: which steps CUDA graphs replay, whether all-reduces are fused with norms."""

import json
from dataclasses import dataclass
from typing import Any, Literal

from msgspec import field

from files.documents import parse_json
from files.schema import Strict, typed

NONE, PIECEWISE, FULL, FULL_DECODE_ONLY, FULL_AND_PIECEWISE = CUDAGRAPH_MODES = (
    "NONE", "PIECEWISE", "FULL", "FULL_DECODE_ONLY", "FULL_AND_PIECEWISE",
)  # fmt: skip
"""vLLM's CUDAGraphMode, config/compilation.py."""


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """What of a compilation decides step times; None: as the release does by itself."""

    cudagraph_mode: str | None = None
    fuse_allreduce_rms: bool | None = None

    def __str__(self) -> str:
        """As vLLM takes it."""
        known: dict[str, Any] = {}
        if self.cudagraph_mode is not None:
            known["cudagraph_mode"] = self.cudagraph_mode
        if self.fuse_allreduce_rms is not None:
            known["pass_config"] = {"fuse_allreduce_rms": self.fuse_allreduce_rms}
        return json.dumps(known)


class _Passes(Strict, frozen=True, kw_only=True):
    fuse_allreduce_rms: bool | None = None
    enable_fi_allreduce_fusion: bool | None = None  # its name before 0.13
    # What removes copies and joins small kernels: no measurement tells them apart.
    eliminate_noops: object = None
    enable_noop: object = None
    enable_fusion: object = None
    enable_attn_fusion: object = None
    fuse_attn_quant: object = None
    fuse_norm_quant: object = None
    fuse_act_quant: object = None
    fuse_minimax_qk_norm: object = None
    enable_qk_norm_rope_fusion: object = None
    fuse_rope_kvcache: object = None
    fuse_rope_kvcache_cat_mla: object = None
    fuse_qk_norm_rope_kvcache: object = None
    fuse_mla_dual_rms_norm: object = None
    fuse_act_padding: object = None
    rope_kvcache_fusion_max_token_num: object = None
    fi_allreduce_fusion_max_size_mb: object = None


class _Config(Strict, frozen=True, kw_only=True):
    cudagraph_mode: Literal[CUDAGRAPH_MODES] | None = None  # type: ignore[valid-type]
    pass_config: _Passes = field(default_factory=_Passes)
    # How code is generated: no measurement tells them apart.
    mode: object = None
    level: object = None
    backend: object = None
    custom_ops: object = None
    splitting_ops: object = None
    use_inductor: object = None
    use_inductor_graph_partition: object = None
    compile_sizes: object = None
    cache_dir: object = None
    local_cache_dir: object = None
    compile_cache_save_format: object = None
    debug_dump_path: object = None
    inductor_compile_config: object = None
    inductor_passes: object = None
    compile_ranges_endpoints: object = None
    dynamic_shapes_config: object = None
    fast_moe_cold_start: object = None
    # Which sizes are captured, and how: memory moves by fractions of a GiB.
    cudagraph_capture_sizes: object = None
    max_cudagraph_capture_size: object = None
    cudagraph_num_of_warmups: object = None
    cudagraph_copy_inputs: object = None


@dataclass(frozen=True)
class CompilationConfig:
    """vLLM's JSON object."""

    name: str = "JSON"

    def read(self, given: object) -> Compilation:
        """Raises HeadcountError for a setting that is not known, or for a mode that vLLM does not have."""
        if isinstance(given, Compilation):
            return given
        settings = given if isinstance(given, dict) else parse_json(str(given), "the text")
        if isinstance(settings, dict) and isinstance(settings.get("cudagraph_mode"), str):  # as vLLM reads it
            settings = {**settings, "cudagraph_mode": settings["cudagraph_mode"].upper()}
        config = typed(settings, _Config, "")
        passes = config.pass_config
        fused = passes.enable_fi_allreduce_fusion if passes.fuse_allreduce_rms is None else passes.fuse_allreduce_rms
        return Compilation(cudagraph_mode=config.cudagraph_mode, fuse_allreduce_rms=fused)
