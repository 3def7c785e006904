"""What one GPU can hold, move or compute."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from files.documents import read_toml
from files.errors import HeadcountError
from files.names import UnknownNameError, nearest_hint, shortened
from files.registry import Registry
from files.schema import AtLeastOne, Positive, table

GPUS = Registry(what="GPU", section="gpus", folder=Path(__file__).parent, suffix=".toml")
Multiply = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4"]
"""What a matrix multiply computes in."""
Rate = Annotated[float, Meta(gt=0, le=1e20, description="a number above 0")]
Slug = Annotated[str, Meta(pattern="^[a-z0-9-]{1,40}$", description="a name in lower-case letters, digits and -")]

GIVEN_PRICE = "the price that was given"
GPUS_OF_A_SERVER = 8  # HGX and DGX boards; servers of PCIe cards mostly hold as many
MONEY = ("usd_per_hour", "source")  # fields that say what it costs, and who says so: no simulation depends on them


@dataclass(frozen=True, kw_only=True)
class GPU:
    """One accelerator.

    `memory_bytes` is what the driver reports as total. `flops_per_s` is dense, by multiply type.
    `interconnect_bytes_per_s` is one direction, per GPU; `host_link_bytes_per_s` the same to the server's memory, as
    specified. `scale_up_gpus` is how many GPUs the interconnect joins. `idle_watts` is measured with a model loaded.
    `source` has an entry for every figure that is given; a host link, a price or a power that nobody publishes is None.
    """

    name: str
    memory_bytes: AtLeastOne
    memory_bandwidth_bytes_per_s: Rate
    flops_per_s: Mapping[Multiply, Rate] = field(hash=False)
    interconnect: Literal["nvlink", "pcie"]
    interconnect_bytes_per_s: Rate
    family: Slug
    source: Mapping[str, str] = field(hash=False)
    host_link_bytes_per_s: Rate | None = None
    scale_up_gpus: AtLeastOne | None = None
    usd_per_hour: Positive | None = None
    tdp_watts: Rate | None = None
    idle_watts: Rate | None = None
    interconnect_name: Annotated[str, Meta(max_length=40)] = ""  # its vendor's, where it computes as another one
    product: Annotated[str, Meta(max_length=80)] = ""
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = {*_SOURCED, *(key for key in _OPTIONAL if getattr(self, key) is not None)}
        missing = sorted(given - {key for key, text in self.source.items() if text.strip()})
        if missing:
            raise HeadcountError(f"no source for {', '.join(missing)}; add it under [source]")
        if self.idle_watts is not None and self.idle_watts > (self.tdp_watts or 0):
            raise HeadcountError(f"idle_watts is {self.idle_watts:g}; give a tdp_watts of at least that")
        if not {"bf16", "fp16"} & self.flops_per_s.keys():
            raise HeadcountError("flops_per_s has neither bf16 nor fp16; give one, which others are scaled from")

    @property
    def is_amd(self) -> bool:
        """Whether its kernels are ROCm's."""
        return self.family.startswith(("cdna", "rdna"))

    @property
    def is_data_center_blackwell(self) -> bool:
        """Whether it is a B200 or the like, of compute capability 10; those without NVLink (RTX, GB10) have 12."""
        return self.family == "blackwell" and self.interconnect == "nvlink"

    @property
    def gpus_joined(self) -> int:
        """GPUs that the interconnect joins: 8 of a server unless the catalog says otherwise."""
        return self.scale_up_gpus or GPUS_OF_A_SERVER

    @property
    def title(self) -> str:
        """What its vendor sells it as; the catalog's name where nobody said."""
        return self.product or self.name

    @property
    def is_for_consumers(self) -> bool:
        """Whether it is sold for desktops: NVIDIA's licence of its GeForce drivers rules out data centres."""
        return "GeForce" in self.product

    @property
    def interconnect_title(self) -> str:
        """What its vendor calls the interconnect, such as `Infinity Fabric`."""
        return self.interconnect_name or self.interconnect

    @property
    def price_vendor(self) -> str:
        """Whose list price it is, such as `RunPod`; "" without one."""
        source = self.source.get("usd_per_hour", "")
        return "" if source in ("", GIVEN_PRICE) else source.split()[0]

    def at_price(self, usd_per_hour: float) -> "GPU":
        """The same for another price than the catalog's."""
        return replace(self, usd_per_hour=usd_per_hour, source={**self.source, "usd_per_hour": GIVEN_PRICE})

    def usd_per_hour_of(self, gpus: int) -> float | None:
        """The list price of so many; None without one."""
        return None if self.usd_per_hour is None else gpus * self.usd_per_hour


_COUNTED = re.compile(r"^\d+\s*[x×*]\s*|(:.*|[x×*]\s*\d+)$", re.IGNORECASE)  # of `4xh100`, `h100:4`, `h100 x4`
_SOURCED = (
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "flops_per_s",
    "interconnect_bytes_per_s",
)
_OPTIONAL = ("host_link_bytes_per_s", "scale_up_gpus", "usd_per_hour", "tdp_watts", "idle_watts")


def gpu_names() -> tuple[str, ...]:
    """Every GPU of the catalog."""
    return GPUS.names()


def find_gpu(name: str) -> GPU:
    """The GPU of that name or alias, in any case. Raises `UnknownNameError` with the nearest names."""
    slug = name.strip().lower().replace("_", "-").replace(" ", "-")
    files = GPUS.files()
    if slug in files:
        return read_gpu(files[slug])
    for path in files.values():
        gpu = read_gpu(path)
        if slug in gpu.aliases:
            return gpu
    bare = _COUNTED.sub("", name)
    if bare == name or not bare:
        raise GPUS.unknown(name)
    hint = nearest_hint(bare.strip(), files)
    raise UnknownNameError(
        f"no GPU '{shortened(name)}'; {hint}{'' if hint.endswith('?') else '.'} Give the name alone, and how many as "
        "--gpus or --tensor-parallel-size"
    )


@cache
def read_gpu(path: Path) -> GPU:
    """One catalog file. Raises InputError where a field is missing, unknown, wrong or without a source."""
    return table(read_toml(path), GPU, path, name=path.stem)
