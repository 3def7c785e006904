"""Sizes of the LoRA slots that vLLM's own layers allocate on one rank; run by an interpreter that has it.

usage: python adapters_probe.py CASES.jsonl > SIZES.jsonl

Each line of the input is a case as weights_probe takes it, with `max_loras`, `max_lora_rank`, `fully_sharded_loras`. A
line comes out for each: `{"name", "vllm", "bytes"}`, or `{"name", "vllm", "refused"}` with the reason.
"""

import tempfile
from unittest.mock import MagicMock

import torch
import vllm
import vllm.lora.layers.fused_moe as experts
import weights_probe
from each_case import print_each
from vllm.config import set_current_vllm_config
from vllm.config.lora import LoRAConfig
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.lora.model_manager import create_lora_manager


class PretendedKernel(torch.nn.Module):
    """Of experts: the CPU has none that takes adapters, and slots are the same with any."""

    supports_internal_mk = True
    is_monolithic = False

    def __init__(self):
        super().__init__()
        self.impl = MagicMock(spec=experts.FusedMoEKernelModularImpl)
        self.fused_experts = MagicMock(spec=experts.LoRAExpertsMixin)
        self.prepare_finalize = None

    @property
    def moe_kernel(self):
        """Itself."""
        return self

    def supports_lora(self):
        """As the GPU's do."""
        return True


def pretend_kernels(model):
    """Sets a kernel for each layer of experts."""
    experts.FusedMoEModularMethod = lambda *_: None
    for module in model.modules():
        if isinstance(module, experts.MoERunner):
            module._replace_quant_method = lambda _: None
            routed = module.routed_experts
            routed.quant_method = PretendedKernel()
            routed._ensure_moe_quant_config_init = lambda: None


def slots(model):
    """Storages of all stacked A and B, once where layers share them."""
    found = {}
    for module in model.modules():
        if not isinstance(module, BaseLayerWithLoRA):
            continue
        for name, value in vars(module).items():
            for tensor in value if isinstance(value, (tuple, list)) else [value]:
                if isinstance(tensor, torch.Tensor) and "stacked" in name:
                    storage = tensor.untyped_storage()
                    found[storage.data_ptr()] = storage.nbytes()
    return found


def allocate(case, folder):
    """The model on one rank, with its slots."""
    model, config = weights_probe.build(case, folder)
    pretend_kernels(model)
    config.lora_config = LoRAConfig(
        max_lora_rank=case["max_lora_rank"],
        max_loras=case["max_loras"],
        fully_sharded_loras=case["fully_sharded_loras"],
        lora_dtype=torch.bfloat16,
    )
    with set_current_vllm_config(config), torch.device("cpu"):
        manager = create_lora_manager(
            model,
            max_num_seqs=8,
            max_num_batched_tokens=64,
            vocab_size=config.model_config.get_vocab_size(),
            lora_config=config.lora_config,
            device=torch.device("cpu"),
            vllm_config=config,
        )
    return manager.model


def measure(case):
    """One line of the output."""
    line = {"name": case["name"], "vllm": vllm.__version__}
    try:
        with tempfile.TemporaryDirectory() as folder:
            held = slots(allocate(case, folder))
    except Exception as error:  # whatever stops vLLM is its answer to this case
        return {**line, "refused": f"{type(error).__name__}: {str(error)[:300]}"}
    return {**line, "bytes": sum(held.values())}


if __name__ == "__main__":
    print_each(measure)
