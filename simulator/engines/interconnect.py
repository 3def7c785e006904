"""How a server links its GPUs over PCIe, where its user says so: generation, lanes, access from card to card."""

import re
from dataclasses import dataclass, replace

from files.errors import HeadcountError
from files.names import shortened
from kvcache.gpus.gpu import GPU

# Of one lane, one way: 8, 16, 32 GT/s with 130 bits for 128 (PCI Express base specification 3.0, 4.0, 5.0).
LANE_BYTES_PER_S = {generation: 2**generation * 1e9 / 8 * 128 / 130 for generation in (3, 4, 5)}
LINK = re.compile(r"pcie([345])x(1|2|4|8|16)(?:-(p2p|host))?")
PEERS = "p2p"


@dataclass(frozen=True)
class PCIeLink:
    """Of each card: bytes per second, one way; whether cards read each other's memory, None where nothing says so."""

    bytes_per_s: float
    has_peers: bool | None


def read_link(text: str) -> PCIeLink:
    """Such as `pcie4x16`, `pcie5x8-p2p`, `pcie3x4-host`. Raises HeadcountError for other forms."""
    found = LINK.fullmatch(text.lower())
    if found is None:
        raise HeadcountError(
            f"interconnect is '{shortened(text)}'; give PCIe's generation (3, 4, 5) and lanes (1, 2, 4, 8, 16), such "
            "as pcie4x16; with -p2p where cards read each other's memory, with -host where all goes through CPU memory"
        )
    generation, lanes, access = found.groups()
    return PCIeLink(int(lanes) * LANE_BYTES_PER_S[int(generation)], None if access is None else access == PEERS)


def linked(gpu: GPU, interconnect: str | None) -> GPU:
    """The GPU in such a server. Raises HeadcountError for one that is linked by NVLink or the like."""
    if interconnect is None:
        return gpu
    if gpu.interconnect != "pcie":
        link = gpu.interconnect_name or "NVLink"
        raise HeadcountError(
            f"interconnect is '{interconnect}', but {gpu.name} is linked by {link}; leave it out, or name the PCIe "
            "version of the GPU"
        )
    source = {**gpu.source, "interconnect_bytes_per_s": f"interconnect {interconnect}, as given"}
    return replace(gpu, interconnect_bytes_per_s=read_link(interconnect).bytes_per_s, source=source)
