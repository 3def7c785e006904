"""Which pools are asked for that prefill and decode apart, and what lies between them."""

import math
from collections.abc import Mapping

from headcount.questions.deployments import Subject
from simulator.apart import DISPATCH_S, NIC_BYTES_PER_S, REACHED_SHARE, Apart, Between, resolve_apart
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.pool_sizes import DECODE, PREFILL, Part, PoolSizes

ApartPools = Mapping[str, Part | str] | str


def asked_apart(
    asked: Subject,
    pools: ApartPools | None,
    kv_transfer_rate: float | None,
    dispatch_s: float | None,
    *,
    replicas: int = 1,
) -> Apart | None:
    """Both deployments, or None where every engine does both. `kv_transfer_rate` is in GB/s by one GPU, one way.

    Raises ValueError for another engine than vLLM, or for what cannot be.
    """
    if pools is None:
        for name, given in (("--kv-transfer-rate", kv_transfer_rate), ("--dispatch", dispatch_s)):
            if given is not None:
                raise ValueError(f"{name} lies between two pools; give --pools prefill=N,decode=N with it")
        return None
    if replicas != 1:
        raise ValueError("--replicas and --pools both say how many engines there are; leave out one or the other")
    if not isinstance(asked.args, EngineArgs):
        raise ValueError("prefill and decode apart is not simulated with SGLang; leave --pools out, or choose vLLM")
    if kv_transfer_rate is not None and not 0 < kv_transfer_rate < math.inf:
        raise ValueError(f"--kv-transfer-rate is {kv_transfer_rate:g} GB/s; it must be above 0")
    found = PoolSizes().read(pools)
    rate = REACHED_SHARE * NIC_BYTES_PER_S if kv_transfer_rate is None else 1e9 * kv_transfer_rate
    between = Between(bytes_per_s=rate, dispatch_s=DISPATCH_S if dispatch_s is None else dispatch_s)
    return resolve_apart(asked.architecture, asked.gpu, asked.args, (found[PREFILL], found[DECODE]), between)
