"""Which settings might make a server another than the one that was simulated."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from calibrate.check.replay import Replay
from kvcache.gpus.gpu import find_gpu, gpu_names
from simulator.deployment import MAX_TENSOR_PARALLEL_SIZE
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.compilation import FULL_AND_PIECEWISE, PIECEWISE, Compilation

FEWER_SEQUENCES = (8, 16, 32, 64, 128, 256)
TOKEN_BUDGETS = (512, 2048, 8192, 16384)
AGAINST_STATED = 1.3  # penalty of a setting that contradicts the files or the command line
OF_ANOTHER_NAME = 1.3  # penalty of a GPU that nobody takes for the one that was told, such as an h200 for an h100


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Options that the server may have had instead, and how they are called."""

    words: str
    options: Mapping[str, object]
    penalty: float = 1.0  # by what a misfit under it counts more: an unlikely setting must explain more


def possible_settings(item: Replay, stated: Collection[str], in_flight: float) -> Iterator[Setting]:
    """What the server may have been, also against what was stated of it.

    `in_flight` are the requests at once under the fullest load. Some of these the engine would refuse.
    """
    for setting in (*_engine(item, in_flight), *_formats(item), *_parallelism(item), *_experts(item)):
        name = next(iter(setting.options))
        if name in stated:
            words = f"{setting.words}, though another {name} was stated"
            yield replace(setting, words=words, penalty=AGAINST_STATED)
        else:
            yield setting
    yield from _gpus(item)


def _gpus(item: Replay) -> Iterator[Setting]:
    gpu = item.deployment.gpu
    for other in gpu_names():
        if other != gpu.name and find_gpu(other).family == gpu.family:
            penalty = 1.0 if other.split("-")[0] == gpu.name.split("-")[0] else OF_ANOTHER_NAME
            yield Setting(words=f"a GPU that is {other}, not {gpu.name}", options={"gpu": other}, penalty=penalty)


def _engine(item: Replay, in_flight: float) -> Iterator[Setting]:
    args, budget, sequences = item.deployment.args, "max_num_batched_tokens", "max_num_seqs"
    if isinstance(args, SGLangArgs):
        budget, sequences = "chunked_prefill_size", "max_running_requests"
        yield from _sglang(item, args)
    else:
        yield from _vllm(item)
    for size in TOKEN_BUDGETS:
        if size != getattr(args, budget):
            yield Setting(words=f"--{budget.replace('_', '-')} {size}", options={budget: size})
    for count in FEWER_SEQUENCES:
        if in_flight / 8 <= count < min(in_flight, getattr(args, sequences)):
            yield Setting(words=f"--{sequences.replace('_', '-')} {count}", options={sequences: count})


def _vllm(item: Replay) -> Iterator[Setting]:
    args, engine = item.deployment.args, item.deployment.vllm_engine
    if not args.enforce_eager:
        yield Setting(words="eager mode (--enforce-eager)", options={"enforce_eager": True})
    if args.cudagraph_mode == FULL_AND_PIECEWISE:
        words = "attention outside of CUDA graphs (cudagraph_mode PIECEWISE)"
        yield Setting(words=words, options={"compilation": Compilation(cudagraph_mode=PIECEWISE)})
    if engine.async_scheduling:
        yield Setting(words="synchronous scheduling", options={"async_scheduling": False})
    if engine.enable_prefix_caching and item.table.span_count.any():
        yield Setting(words="no prefix caching", options={"enable_prefix_caching": False})
    if engine.enable_chunked_prefill:
        yield Setting(words="no chunked prefill", options={"enable_chunked_prefill": False})


def _sglang(item: Replay, args: SGLangArgs) -> Iterator[Setting]:
    if not args.disable_cuda_graph:
        yield Setting(words="no CUDA graphs (--disable-cuda-graph)", options={"disable_cuda_graph": True})
    if not args.disable_overlap_schedule:
        yield Setting(words="no overlap schedule", options={"disable_overlap_schedule": True})
    if not args.disable_radix_cache and item.table.span_count.any():
        yield Setting(words="no radix cache", options={"disable_radix_cache": True})


def _formats(item: Replay) -> Iterator[Setting]:
    budget, dtype = item.deployment.budget, item.deployment.architecture.dtype
    fp8 = "fp8_e4m3" if isinstance(item.deployment.args, SGLangArgs) else "fp8"
    cache = dtype if "fp8" in budget.kv_cache_dtype else fp8
    yield Setting(words=f"a KV cache in {cache}", options={"kv_cache_dtype": cache})
    weights = ("fp8", "awq") if budget.quantization == "none" else ("none",)
    for name in weights:
        words = "weights in 16 bits" if name == "none" else f"weights in {name}"
        yield Setting(words=words, options={"quantization": name})


def _parallelism(item: Replay) -> Iterator[Setting]:
    args = item.deployment.args
    for size in (args.tensor_parallel_size // 2, args.tensor_parallel_size * 2):
        if 1 <= size <= MAX_TENSOR_PARALLEL_SIZE:
            yield Setting(words=f"--tensor-parallel-size {size}", options={"tensor_parallel_size": size})


def _experts(item: Replay) -> Iterator[Setting]:
    args = item.deployment.args
    if not item.deployment.architecture.is_moe:
        return
    if args.tensor_parallel_size > 1:
        asked = not args.enable_expert_parallel
        words = "expert parallelism" if asked else "no expert parallelism"
        yield Setting(words=words, options={"enable_expert_parallel": asked})
    for kernel in ("triton", "marlin"):  # as what vLLM picks, where nothing else is known of them
        yield Setting(words=f"experts by {kernel} (--moe-backend)", options={"moe_backend": kernel})
