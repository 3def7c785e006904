"""Stands for the kernels and the ranks of GPUs that are not here; for probes, beside a real vLLM."""

import importlib
import sys
from unittest.mock import MagicMock

import torch
from vllm.distributed import parallel_state
from vllm.model_executor.layers.attention.mla_attention import MLACommonBackend
from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as experts
from vllm.platforms import current_platform
from vllm.v1.attention.backend import AttentionBackend, AttentionMetadataBuilder, MultipleOf
from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend

PLATFORM = type(current_platform)


def without_kernels(module):
    """A module of vLLM that imports GPU libraries which are not here: stubs stand for them while it is imported."""
    stubs = []
    while True:
        try:
            found = importlib.import_module(module)
            break
        except ModuleNotFoundError as error:
            if not (error.name or "").startswith(("flashinfer", "cutlass", "cuda", "torchvision")):
                raise
            sys.modules[error.name] = MagicMock()
            stubs.append(error.name)
    for name in stubs:
        del sys.modules[name]
    return found


FLASHINFER = without_kernels("vllm.v1.attention.backends.flashinfer").FlashInferBackend


class Kernels(AttentionBackend):
    """Stands for the attention kernels of a GPU; a case sets their block sizes."""

    sizes = (MultipleOf(16),)
    supported_kv_cache_dtypes = ()
    supported_dtypes = (torch.float16, torch.bfloat16, torch.float32)
    forward_includes_kv_cache_update = False
    accept_output_buffer = True

    @classmethod
    def get_supported_kernel_block_sizes(cls, kv_cache_spec=None):
        return list(cls.sizes)

    @classmethod
    def customize_spec(cls, spec):
        return FLASHINFER.customize_spec(TritonAttentionBackend.customize_spec(spec))

    @staticmethod
    def get_name():
        return "CPU_ATTN"

    @staticmethod
    def get_impl_cls():
        return Implementation

    @staticmethod
    def get_builder_cls():
        return AttentionMetadataBuilder


class LatentKernels(Kernels):
    """The same for latent attention."""

    @classmethod
    def customize_spec(cls, spec):
        return MLACommonBackend.customize_spec(spec)

    @classmethod
    def is_mla(cls):
        return True


class Implementation:
    """What an attention layer makes of its backend, never run."""

    supports_pcp = supports_dcp = True
    dcp_world_size = pcp_world_size = 1

    def __init__(self, num_heads=0, head_size=0, *_, **__):
        self.num_heads, self.head_size = num_heads, head_size

    def __getattr__(self, name):
        return self.__dict__.get(name)


class Rank:
    """One process of a group of them, as far as layers ask when they are built."""

    def __init__(self, size, rank=0):
        self.world_size, self.rank_in_group, self.rank, self.local_rank = size, rank, rank, rank
        self.ranks, self.first_rank, self.last_rank = list(range(size)), 0, size - 1
        self.is_first_rank, self.is_last_rank = rank == 0, rank == size - 1
        self.device_group = self.cpu_group = self
        self.device_communicator = None
        self.device, self.unique_name, self.use_device_communicator = torch.device("cpu"), "one", False

    def size(self):
        return self.world_size


def play_rank(tp, pp=1, stage=0):
    """Make this process a rank of a split model."""
    parallel_state._TP, parallel_state._PP = Rank(tp), Rank(pp, stage)
    parallel_state._WORLD = Rank(tp * pp)
    for name in ("_DP", "_EP", "_DCP", "_PCP", "_EPLB"):
        if hasattr(parallel_state, name):
            setattr(parallel_state, name, Rank(1))


def set_kernels(case):
    """The block sizes of the case's backend."""
    Kernels.sizes = [MultipleOf(size) if case["multiples"] else size for size in case["kernel_block_sizes"]]


def as_on_a_gpu():
    """Leave out what vLLM sets for a CPU."""
    PLATFORM.check_and_update_config = classmethod(lambda *_: None)
    PLATFORM.get_attn_backend_cls = classmethod(kernels_of)
    experts.select_unquantized_moe_backend = lambda **_: (experts.UnquantizedMoeBackend.OOT, None)
    item = torch.Tensor.item
    torch.Tensor.item = lambda tensor: 0.0 if tensor.is_meta else item(tensor)  # Gemma 3n reads constants back


def kernels_of(_, __, attn_selector_config, **___):
    """Where vLLM finds the backend of an attention layer."""
    kernels = LatentKernels if attn_selector_config.use_mla else Kernels
    return f"gpu_stand_ins.{kernels.__name__}"
