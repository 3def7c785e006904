"""What one GPU can hold, move or compute."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from boundary.documents import read_toml
from boundary.registry import Registry

GPUS = Registry(what="GPU", section="gpus", folder=Path(__file__).parent, suffix=".toml")


@dataclass(frozen=True, kw_only=True)
class GPU:
    """One accelerator.

    `memory_bytes` is what the driver reports as total. `flops_per_s` is dense, by multiply type.
    `interconnect_bytes_per_s` is one direction, per GPU. `source` has an entry for every field.
    """

    name: str
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    flops_per_s: Mapping[str, float]
    interconnect: str
    interconnect_bytes_per_s: float
    family: str
    usd_per_hour: float
    source: Mapping[str, str]
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        numbers = (
            self.memory_bytes,
            self.memory_bandwidth_bytes_per_s,
            self.interconnect_bytes_per_s,
            self.usd_per_hour,
        )
        if min(*numbers, *self.flops_per_s.values()) <= 0:
            raise ValueError(f"gpus/{self.name}.toml: every figure must be positive; correct it")
        missing = sorted({*_SOURCED} - {key for key, text in self.source.items() if text.strip()})
        if missing:
            raise ValueError(f"gpus/{self.name}.toml: no source for {', '.join(missing)}; add it under [source]")


_SOURCED = (
    "memory_bytes",
    "memory_bandwidth_bytes_per_s",
    "flops_per_s",
    "interconnect_bytes_per_s",
    "usd_per_hour",
)


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
    raise GPUS.unknown(name)


@cache
def read_gpu(path: Path) -> GPU:
    """One catalog file. Raises `ValueError` where a field is missing, unknown or without a source."""
    fields = read_toml(path)
    if "name" in fields:
        raise ValueError(f"gpus/{path.name}: a GPU's name is its file's; leave 'name' out")
    fields["aliases"] = tuple(fields.get("aliases", ()))
    try:
        return GPU(name=path.stem, **fields)
    except TypeError as error:
        raise ValueError(f"gpus/{path.name}: {error}") from None
