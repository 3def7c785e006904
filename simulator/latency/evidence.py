"""What of a deployment's step times was measured neither on its GPU nor on GPUs of its family."""

from kvcache.formats.quantization import QuantizationScheme
from simulator.latency.expert_kernels import ExpertKernel
from simulator.latency.gpu_constants import GENERAL, Constants, has_measured_times
from simulator.latency.model import LogError, ServedModel

# As constants/generic.toml has them. Cards of one family differ about as much: of their peaks of bandwidth and bf16
# compute an RTX 4090 reaches 0.97 and 0.94, an L40S 0.78 and 0.66.
SCALED_TPOT = LogError(deployment=0.30, residual=0.08)
SCALED_TTFT = LogError(deployment=0.40, residual=0.15)
EVERY_KERNEL = "every kernel"
# Of SGLang, whose steps take vLLM's times: of 201 settings of public runs, 93 of them for TTFT, to which nothing was
# fitted (docs/measurements/sglang.md).
SGLANG_TPOT = LogError(deployment=0.12, residual=0.089, half_width_sds=2.02389)
SGLANG_TTFT = LogError(deployment=0.132, residual=0.134, half_width_sds=2.25718)
_PCIE_ALL_REDUCES = ("l40s",)  # kernel tables of them
_PLAIN = ("none", "bf16", "fp16", "fp32")


def unmeasured_parts(
    served: ServedModel, scheme: QuantizationScheme, constants: Constants, kernel: ExpertKernel | None
) -> tuple[str, ...]:
    """The parts in words; EVERY_KERNEL alone where neither this card nor whole runs of its family were measured."""
    gpu = served.gpu
    if not (has_measured_times(gpu) or _has_family_runs(served, constants)):
        return (EVERY_KERNEL,)
    found: list[str] = []
    if served.args.tensor_parallel_size > 1 and gpu.interconnect == "pcie" and gpu.name not in _PCIE_ALL_REDUCES:
        found.append("all-reduces over PCIe")
    if constants.is_measured and constants.covariance == GENERAL:  # by a few runs of one dense model in 16 bits
        found += ["experts"] if served.architecture.is_moe else []
        found += [] if scheme.name in _PLAIN else [f"{scheme.name} weights"]
    if kernel is not None and not kernel.is_known:
        found.append(f"experts by {kernel.name}")
    return tuple(found)


def _has_family_runs(served: ServedModel, constants: Constants) -> bool:
    """Whether the constants are those of the family, and were fitted to runs of several models."""
    return constants.name == served.gpu.family and bool(constants.log_errors_by_kind)
