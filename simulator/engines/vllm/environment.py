"""What the environment variables of a server change."""

import re
import shlex
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from files.errors import HeadcountError
from files.names import shortened
from kvcache.errors import SplitError

VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*=")
FLOAT32_PRECISION = "VLLM_FLOAT32_MATMUL_PRECISION"
ROUTING, EVEN_ROUTING = "VLLM_MOE_ROUTING_SIMULATION_STRATEGY", "uniform_random"  # other strategies are not modelled
P2P_LEVEL, P2P_DISABLE = "NCCL_P2P_LEVEL", "NCCL_P2P_DISABLE"
P2P_LEVELS = {"LOC": False, "NVL": False, "PIX": True, "PXB": True, "PHB": True, "SYS": True}  # whether beyond NVLink
FLOAT32_PRECISIONS = ("highest", "high", "medium")  # fp32; the others let TF32 in
# Where files lie, what is logged, how processes talk: nothing of it decides an answer.
DISPATCHED, MOST_DISPATCHED = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK", 1024
_WITHOUT_EFFECT = re.compile(
    r"^(CUDA_VISIBLE_DEVICES|(HF|HUGGING_?FACE|TRANSFORMERS|TOKENIZERS|NCCL|GLOO|UCX|OMP|PYTHON|LD|PIP|AWS|RAY)_.*|PATH|"
    r"HOME|LANG|LC_.*|DO_NOT_TRACK|PYTHONPATH|"
    r"VLLM_(API_KEY|HOST_IP|PORT|RPC_.*|LOGGING_.*|CONFIGURE_LOGGING|CACHE_ROOT|CONFIG_ROOT|NO_USAGE_STATS|DO_NOT_TRACK|"
    r"WORKER_MULTIPROC_METHOD|ALLOW_LONG_MAX_MODEL_LEN|USE_V1|MXFP4_USE_MARLIN|FLOAT32_MATMUL_PRECISION|"
    r"USE_FLASHINFER_MOE_MXFP4_MXFP8|USE_MODELSCOPE|ENGINE_ITERATION_TIMEOUT_S|HTTP_TIMEOUT_KEEP_ALIVE|"
    r"TORCH_PROFILER_DIR|TRACE_FUNCTION|USAGE_.*)|"
    r"SGLANG_(DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK|LOG_.*|LOGGING_.*|HOST_IP|PORT|USE_MODELSCOPE|TORCH_PROFILER_DIR|CACHE_DIR))$"
)


@dataclass(frozen=True)
class Variables:
    """Assignments as a shell takes them, such as `VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1`."""

    name: str = "NAME=VALUE …"

    def read(self, given: object) -> tuple[str, ...]:
        if isinstance(given, tuple):
            return given
        words = shlex.split(str(given))
        for word in words:
            if not VARIABLE.match(word):
                raise HeadcountError(f"'{shortened(word)}' is no assignment; give NAME=VALUE, separated by blanks")
        return tuple(words)


def check_environment(variables: Iterable[str], num_gpus: int) -> None:
    """Raise ValueError for an engine that is not simulated, SplitError for fewer GPUs than the arguments ask for."""
    values = dict(variable.split("=", 1) for variable in variables)
    if values.get("VLLM_USE_V1", "1") == "0":
        raise HeadcountError("VLLM_USE_V1=0 asks for engine V0, which is not simulated; leave it out")
    if _float32_precision(variables) not in FLOAT32_PRECISIONS:
        given, known = shortened(values[FLOAT32_PRECISION]), ", ".join(FLOAT32_PRECISIONS)
        raise HeadcountError(f"{FLOAT32_PRECISION} is '{given}', must be one of {known}")
    if values.get(P2P_LEVEL, "SYS").upper() not in P2P_LEVELS:
        raise HeadcountError(f"{P2P_LEVEL} is '{shortened(values[P2P_LEVEL])}', must be one of {', '.join(P2P_LEVELS)}")
    dispatched_at_once(variables)
    devices = [device for device in values.get("CUDA_VISIBLE_DEVICES", "").split(",") if device.strip()]
    if devices and len(devices) < num_gpus:
        raise SplitError(
            f"CUDA_VISIBLE_DEVICES={values['CUDA_VISIBLE_DEVICES']} shows {len(devices)} of the {num_gpus} GPUs that "
            "the parallel sizes ask for; show more, or lower --tensor-parallel-size"
        )


def dispatched_at_once(variables: Iterable[str]) -> int:
    """Tokens of a GPU that DeepEP's kernels for decodes take (SGLang 0.5.23 `environ.py`)."""
    given = dict(variable.split("=", 1) for variable in variables).get(DISPATCHED, "128")
    if not given.isdecimal() or not 0 < int(given) <= MOST_DISPATCHED:
        raise HeadcountError(f"{DISPATCHED} is '{shortened(given)}'; give 1 to {MOST_DISPATCHED:,} tokens")
    return int(given)


def allows_tf32(variables: Iterable[str]) -> bool:
    """Whether 32-bit multiplies may round to TF32, which vLLM leaves off by itself."""
    return _float32_precision(variables) != FLOAT32_PRECISIONS[0]


def routes_evenly(variables: Iterable[str]) -> bool:
    """Whether each token's experts are drawn evenly, in place of what the model's router would choose."""
    values = dict(variable.split("=", 1) for variable in variables)
    return values.get(ROUTING, "").lower() == EVEN_ROUTING


def peers_over_pcie(variables: Iterable[str]) -> bool | None:
    """Whether GPUs have peer access over PCIe, by NCCL's variables; None without them."""
    values = dict(variable.split("=", 1) for variable in variables)
    if values.get(P2P_DISABLE, "0") != "0":
        return False
    return P2P_LEVELS[values[P2P_LEVEL].upper()] if P2P_LEVEL in values else None


def _float32_precision(variables: Iterable[str]) -> str:
    """As vLLM reads it, in any case."""
    values = dict(variable.split("=", 1) for variable in variables)
    return values.get(FLOAT32_PRECISION, FLOAT32_PRECISIONS[0]).lower()


def not_modelled(variables: Collection[str]) -> tuple[str, ...]:
    """Those that may change the answer, and are not looked at."""
    seen = {ROUTING} if routes_evenly(variables) else set()
    names = [word.split("=", 1)[0] for word in variables]
    return tuple(
        word
        for word, name in zip(variables, names, strict=True)
        if name not in seen and not _WITHOUT_EFFECT.match(name)
    )
