"""Sizes of the weights that vLLM's own model code builds for one rank; run by an interpreter that has it.

usage: python weights_probe.py CASES.jsonl > SIZES.jsonl

Each line of the input is `{"name", "config", "tensor_parallel_size", "data_parallel_size", "enable_expert_parallel"}`,
the config as in `config.json`, with its `architectures`. The ranks beside the first are pretended: layers ask their
group only for its size. A line comes out for each: `{"name", "vllm", "elements", "bytes"}`, or `{"name", "vllm",
"refused"}` with the reason. Weights are made, not loaded: keep configs small.
"""

import json
import os
import tempfile

os.environ.update(
    OMP_NUM_THREADS="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_CPU_KVCACHE_SPACE="1",
    HF_HUB_OFFLINE="1",
    VLLM_NO_USAGE_STATS="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL="ERROR",
)

import torch
import vllm
import vllm.distributed.parallel_state as ranks
from each_case import print_each
from published_configs import register_published
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.model_loader.utils import initialize_model


class PretendedGroup:
    """The first rank's view of a group of ranks."""

    rank = rank_in_group = local_rank = first_rank = 0
    is_first_rank = is_last_rank = True
    device = torch.device("cpu")
    device_communicator = None
    use_cpu_custom_send_recv = False
    unique_name = "pretended"

    def __init__(self, size):
        self.world_size = size
        self.ranks = list(range(size))
        self.last_rank = size - 1
        self.device_group = self.cpu_group = self

    def size(self):
        return self.world_size


def pretend(tensor, data):
    """Sets vllm's groups to those of the first rank."""
    ranks._TP = ranks._WORLD = PretendedGroup(tensor)
    ranks._DP, ranks._EP = PretendedGroup(data), PretendedGroup(tensor * data)
    ranks._PP = ranks._PCP = ranks._DCP = PretendedGroup(1)


def build(case, folder):
    """The model on one rank, and vLLM's config of it."""
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(case["config"], file)
    config = EngineArgs(
        model=folder,
        skip_tokenizer_init=True,
        load_format="dummy",
        dtype="bfloat16",
        enforce_eager=True,
        block_size=32,
        enable_prefix_caching=False,  # a CPU has none for latent attention beside states
        max_model_len=256,
    ).create_engine_config()
    parallel = config.parallel_config
    parallel.tensor_parallel_size = case["tensor_parallel_size"]
    parallel.data_parallel_size = case["data_parallel_size"]
    parallel.enable_expert_parallel = case["enable_expert_parallel"]
    pretend(case["tensor_parallel_size"], case["data_parallel_size"])
    torch.set_default_dtype(torch.bfloat16)
    with set_current_vllm_config(config), torch.device("cpu"):
        return initialize_model(vllm_config=config), config


def measure(case):
    """One line of the output."""
    line = {"name": case["name"], "vllm": vllm.__version__}
    try:
        with tempfile.TemporaryDirectory() as folder:
            model, _ = build(case, folder)
            weights = list(model.parameters())  # tied ones once
    except Exception as error:  # whatever stops vLLM is its answer to this case
        return {**line, "refused": f"{type(error).__name__}: {str(error)[:300]}"}
    return {
        **line,
        "elements": sum(weight.numel() for weight in weights),
        "bytes": sum(weight.numel() * weight.element_size() for weight in weights),
    }


if __name__ == "__main__":
    register_published()
    print_each(measure)
