"""Which kernel computes a mixture's experts, and what it makes of the shipped constants."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from kvcache.formats.quantization import QuantizationScheme
from kvcache.releases import precedes
from simulator.engines.vllm.defaults import AUTO
from simulator.latency.gpu_constants import Constants
from simulator.latency.model import ServedModel

FILE = Path(__file__).with_suffix(".toml")
# Before there was --moe-backend.
KERNEL_VARIABLES = {
    "VLLM_MXFP4_USE_MARLIN=1": "marlin",
    "VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1": "flashinfer_trtllm",
}
_TABLES = "kernel times of vLLM 0.24 (aiconfigurator-core 0.12, NVIDIA, Apache-2.0)"


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels of one weight format on one GPU; nothing where they are not known. See expert_kernels.toml."""

    shipped: tuple[str, ...] = ()
    picked: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    source: str = ""

    def chosen(self, backend: str, vllm_version: str) -> str | None:
        """The kernel that runs; None where vLLM picks one that is not known, as the constants' runs did."""
        if backend != AUTO:
            return backend
        since, until = self.picked.get("since"), self.picked.get("until")
        is_picked = (since is None or not precedes(vllm_version, since)) and (
            until is None or precedes(vllm_version, until)
        )
        if self.picked and is_picked:
            return self.picked["kernel"]
        return self.shipped[0] if len(self.shipped) == 1 else None


@dataclass(frozen=True, kw_only=True)
class ExpertKernel:
    """The kernel of a deployment's experts; `name` None where vLLM picks one that is not known."""

    name: str | None
    constants_key: str  # of the experts' constants
    kernels: Kernels

    @property
    def is_known(self) -> bool:
        """Whether its times are the shipped constants, or multiples of them."""
        return self.name is None or self.name in self.kernels.shipped or self.name in self.kernels.others

    @property
    def is_from_tables(self) -> bool:
        """Whether kernel tables alone tell its times, no run."""
        return self.name in self.kernels.others

    def applied(self, constants: Constants) -> Constants:
        """The constants with this kernel's times; as they are where nothing else is known."""
        if not self.is_from_tables:
            return constants
        changed: dict[str, Any] = {}
        for name, factor in self.kernels.others[str(self.name)].items():
            if name != "source":
                shipped = getattr(constants, name)
                changed[name] = {**shipped, self.constants_key: shipped[self.constants_key] * factor}
        return replace(constants, **changed)

    def assumption(self) -> tuple[str, str, str] | None:
        """Which kernel it is, with the source; None where nothing is known."""
        if self.name is None:
            return None
        if not self.is_known:
            shipped = " or ".join(self.kernels.shipped) or "the one that vLLM picks"
            return "expert kernel", f"{self.name}, taken to be as fast as {shipped}", "no measurement of it"
        source = self.kernels.others[self.name]["source"] if self.is_from_tables else self.kernels.source
        return "expert kernel", self.name, _text(str(source))


def expert_kernel(served: ServedModel, scheme: QuantizationScheme, constants_key: str) -> ExpertKernel | None:
    """The kernel that was asked for, or that the release picks by itself on this GPU; None without experts."""
    if not served.architecture.is_moe:
        return None
    tables, gpu = _tables(), served.gpu
    weight_format = scheme.name if scheme.name == "fp8-block" and constants_key != "bf16" else constants_key
    found = tables.get(gpu.name, tables.get(gpu.family, {})).get(weight_format, {})
    kernels = Kernels(**{**found, "shipped": tuple(found.get("shipped", ())), "source": _text(found.get("source", ""))})
    asked = served.args.moe_backend
    if asked == AUTO and weight_format == "mxfp4":
        asked = next((kernel for word, kernel in KERNEL_VARIABLES.items() if word in served.args.environment), AUTO)
    name = kernels.chosen(asked, served.args.vllm_version)
    return ExpertKernel(name=name, constants_key=constants_key, kernels=kernels)


def _text(source: str) -> str:
    return source.replace("TABLES", _TABLES)


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
