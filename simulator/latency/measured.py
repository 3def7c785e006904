"""Which deployments were measured: those of the runs that the constants were fitted to."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kvcache.formats.quantization import QuantizationScheme, resolve_quantization
from kvcache.releases import release_key
from kvcache.shape.architecture import Architecture
from simulator.latency.model import ServedModel

FILE = Path(__file__).with_suffix(".toml")  # written by validation/accuracy --write-spreads
Shape = tuple[int, int, int]


def is_measured(served: ServedModel) -> bool:
    """Whether runs of this model, GPU, format, release and layout were at hand."""
    return deployment_text(served) in _known().get(shape_of(served.architecture), ())


def scheme_of(served: ServedModel) -> QuantizationScheme:
    """The format of its weights: asked for, else the checkpoint's own."""
    arch = served.architecture
    return resolve_quantization(
        served.args.quantization, arch.native_quantization, dtype=arch.dtype, spared=arch.unquantized
    )


def shape_of(arch: Architecture) -> Shape:
    """What a model is recognized by, whatever its name: hidden size, layers, vocabulary."""
    return arch.hidden_size, arch.num_hidden_layers, arch.vocab_size


def deployment_text(served: ServedModel) -> str:
    """`h100-sxm fp8 0.18 tp4 dp1 ep`: what else two deployments of a model have in common."""
    args = served.args
    release = ".".join(map(str, release_key(args.vllm_version)[:2]))
    layout = f"tp{args.attention_ranks} dp{args.data_parallel_size}{' ep' * args.enable_expert_parallel}"
    return f"{served.gpu.name} {scheme_of(served).name} {release} {layout}"


@cache
def _known() -> Mapping[Shape, frozenset[str]]:
    content = tomllib.loads(FILE.read_text(encoding="utf-8"))
    return {tuple(item["shape"]): frozenset(item["deployments"]) for item in content.values()}
