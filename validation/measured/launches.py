"""The server settings of closed-loop runs that their table does not record, from the public launch scripts."""

from dataclasses import dataclass, replace

from simulator.engines.vllm.compilation import FULL_AND_PIECEWISE, FULL_DECODE_ONLY, PIECEWISE, Compilation
from simulator.engines.vllm.defaults import default_async_scheduling
from simulator.engines.vllm.environment import FLOAT32_PRECISION
from validation.measured.settings import TF32_SCRIPT, Setting

BLACKWELL = ("b200-sxm", "b300-sxm", "gb200")
FUSED = Compilation(fuse_allreduce_rms=True)
LENGTH_SPREAD = 0.8  # lengths of requests are uniform in 0.8 – 1.0 × nominal


@dataclass(frozen=True, kw_only=True)
class Launch:
    """The server settings of a run that the table does not record."""

    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    kv_cache_dtype: str = "auto"
    gpu_memory_utilization: float = 0.9
    max_cudagraph_capture_size: int | None = None
    enable_expert_parallel: bool | None = None  # None: what the row says
    async_scheduling: bool = True
    length_spread: float = LENGTH_SPREAD
    moe_backend: str = "auto"
    compilation: Compilation | None = None
    top_p_sampling: bool = False  # InferenceMAX's client asks for temperature 0
    environment: tuple[str, ...] = ()
    checkpoint: str | None = None  # a build that says itself how it is quantized


def launch_of(setting: Setting) -> Launch:
    """How the public launch scripts start vLLM for this run.

    InferenceMAX, later InferenceX, benchmarks/*.sh, 2025-10 – 2026-05, as of the day on which a row was measured.
    """
    model = setting.model.partition("/")[2]
    if model == "Llama-3.1-70B":
        return _launch_of_llama(setting)
    if model == "gpt-oss-120b":  # gptoss_fp4_b200.sh, gptoss_fp4_h200.sh
        is_blackwell = setting.gpu in BLACKWELL
        return Launch(
            kv_cache_dtype="fp8" if is_blackwell else "auto",
            max_num_seqs=512,
            max_cudagraph_capture_size=2048,
            compilation=replace(FUSED, cudagraph_mode=FULL_AND_PIECEWISE) if is_blackwell else None,
            environment=("VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1",) if is_blackwell else (),
        )
    if model == "MiniMax-M2.5":
        return _launch_of_minimax(setting)
    if model == "Kimi-K2.5":
        return _launch_of_kimi(setting)
    if is_of_dynamo(setting):
        # Scheduled as the release does unless told. All lengths are alike (aiperf, deviation 0); simulated
        # clients would stay in step for ever, on servers they drift apart: a spread of 5 %, chosen on these rows.
        # It names no temperature, so Qwen3's own settings hold: top-p 0.95, top-k 20.
        return Launch(
            async_scheduling=default_async_scheduling(setting.version), length_spread=0.95, top_p_sampling=True
        )
    return Launch()


def is_of_dynamo(setting: Setting) -> bool:
    """Runs of NVIDIA's own evaluation (image ai-dynamo/vllm-runtime 0.8.0), not InferenceMAX's: other clients."""
    return setting.model in ("Qwen/Qwen3-32B", "Qwen/Qwen3-235B-A22B-FP8")


def _launch_of_llama(setting: Setting) -> Launch:
    if setting.gpu in BLACKWELL:  # 70b_fp8_b200_docker.sh, 70b_fp4_b200_docker.sh
        fused = replace(FUSED, cudagraph_mode=FULL_DECODE_ONLY)
        return Launch(kv_cache_dtype="fp8", max_num_seqs=512, compilation=fused)
    if setting.gpu == "h100-sxm":
        # 70b_fp8_h100_slurm.sh asks for an fp8 cache and asynchronous scheduling by `--config=config.yaml`, which vLLM
        # takes and ignores (issue 43252, pull request 43548): the release's defaults ran, a 16-bit cache among them.
        is_async = default_async_scheduling(setting.version)
        return Launch(max_num_seqs=setting.concurrency, async_scheduling=is_async)
    # 70b_fp8_h200_slurm.sh: `--config config.yaml`, which is read
    return Launch(kv_cache_dtype="fp8", max_num_seqs=setting.concurrency)


def _launch_of_minimax(setting: Setting) -> Launch:
    if setting.gpu == "h100-sxm":  # minimaxm2.5_fp8_h100.sh
        return Launch(max_num_seqs=256, compilation=Compilation(cudagraph_mode=PIECEWISE))
    checkpoint = "nvidia/MiniMax-M2.5-NVFP4" if setting.precision == "fp4" else None
    if setting.precision == "fp4" and setting.gpu == "b200-sxm" and not setting.script:  # before 2026-04-07
        return Launch(max_num_seqs=setting.concurrency, compilation=FUSED, checkpoint=checkpoint)
    if setting.gpu in BLACKWELL and setting.version == "0.19.0":  # minimaxm2.5_fp8_b300.sh, minimaxm2.5_fp4_b300.sh
        return Launch(
            checkpoint=checkpoint,
            kv_cache_dtype="fp8",
            max_num_batched_tokens=2 * setting.isl,
            max_cudagraph_capture_size=2048,
            environment=(f"{FLOAT32_PRECISION}=high",) if setting.script == TF32_SCRIPT else (),
        )
    if setting.gpu in BLACKWELL:  # minimaxm2.5_fp8_b200.sh of 2026-03: `EP_SIZE -ge 1`, no FlashInfer, no DeepGEMM
        return Launch(gpu_memory_utilization=0.95, enable_expert_parallel=True, moe_backend="triton")
    return Launch()


def _launch_of_kimi(setting: Setting) -> Launch:
    if setting.precision == "int4":  # kimik2.5_int4_h200.sh
        return Launch(gpu_memory_utilization=0.95, compilation=FUSED)
    # Its checkpoint declares an fp8 cache.
    fp4 = Launch(
        checkpoint="nvidia/Kimi-K2.5-NVFP4",
        kv_cache_dtype="fp8",
        max_num_seqs=setting.concurrency,
        compilation=FUSED,
    )
    if setting.script:  # kimik2.5_fp4_b200.sh of 2026-04-20
        return replace(fp4, max_num_batched_tokens=2 * setting.isl, max_cudagraph_capture_size=2048)
    if setting.precision == "fp4":  # kimik2.5_fp4_b200.sh before, kimik2.5_fp4_b300.sh
        return fp4
    return Launch()
