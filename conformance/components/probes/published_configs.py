"""Config classes that checkpoints bring along, from vLLM's own, for it to read their configs without their code."""

from transformers import AutoConfig

try:
    from vllm.transformers_utils.configs.bailing_moe_v3_vl import BailingMoeV3TextConfig
except ImportError:  # releases before 0.32
    BailingMoeV3TextConfig = None


def register_published():
    """Lets vLLM read configs of Ling 2.6 and 3.0."""
    if BailingMoeV3TextConfig is not None:
        AutoConfig.register("bailing_hybrid", BailingMoeV3TextConfig, exist_ok=True)
