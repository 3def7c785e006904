"""What a handover from prefill to decode takes, beside measurements: `python -m validation.kv_transfer`.

Transfers: KV of Qwen3-8B under TP 8 over 8 cards of 25 GB/s, one request at a time, as Mooncake's authors measured.
Handovers: token 1 made by one of 3 prefill engines until token 1 comes from the one decode engine, as measured by the
author of vllm#51919, with a transfer of 29 ms. Of the time 58 ms are the recomputed token with its step alignment: two
steps of 29 ms, since vLLM has two in flight. The same where prefill engines push: of that no measurement is known.
"""

from dataclasses import dataclass

import numpy as np

from kvcache.memory.kv_store import REACHED_SHARE
from kvcache.models.catalog import find_gpu, load_model
from simulator.disaggregation import DISPATCH_S, PoolLink, resolve_disaggregated
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.connectors.pulling import KV_CONSUMER, KV_PRODUCER, Network, Nic, Pull
from simulator.engines.vllm.engine import EngineConfig
from simulator.fleet.fleet import Fleet, Handover, Pool
from simulator.fleet.pool_sizes import DECODE, PREFILL, Part
from simulator.latency.step_time import constant_step_times
from simulator.simulation import Simulation
from workloads.synthetic import open_load

TRANSFERS_S = {146e6: 1.50e-3, 578e6: 4.75e-3, 2.25e9: 16.43e-3, 4.5e9: 31.65e-3}
"""By bytes; Mooncake's transfer engine, 8 x 25 GB/s RoCE."""
CARD_BYTES_PER_S = 25e9
HANDOVER_S = 0.197
TRANSFER_S = 0.029
STEP_S = 0.029


@dataclass(frozen=True)
class Row:
    """A measured time and ours."""

    what: str
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        return self.simulated_s / self.measured_s - 1


def transfers() -> list[Row]:
    """Alone on the network; Mooncake's engine merges neighbouring blocks, so that descriptors do not count."""
    between = PoolLink(bytes_per_s=REACHED_SHARE * CARD_BYTES_PER_S, descriptor_s=0.0)
    args = EngineArgs(vllm_version="0.32.0", tensor_parallel_size=8)
    disaggregated = resolve_disaggregated(
        load_model("qwen3-8b"), find_gpu("h100-sxm"), args, (Part(engines=1), Part(engines=1)), between
    )
    nics = [pool.nic for pool in disaggregated.fleet("round-robin").pools if pool.nic]
    block_bytes = 8 * disaggregated.decode.budget.layout.block_bytes()
    rows = []
    for num_bytes, measured_s in TRANSFERS_S.items():
        network = Network(nics)
        network.hold(0, 0, 1.0)
        network.pull(1, Pull(request=0, num_blocks=round(num_bytes / block_bytes)), 0.0)
        rows.append(Row(f"{num_bytes / 1e6:,.0f} MB", measured_s, network.next_end_s(1)))
    return rows


def handover_s(between: Handover) -> float:
    """The median over a decode engine that is busy."""
    settings = {"num_gpu_blocks": 40_000, "max_model_len": 8192, "max_num_seqs": 256, "max_num_batched_tokens": 8192}
    times = constant_step_times(STEP_S, max_num_batched_tokens=8192, max_num_seqs=256)
    nic = Nic(block_s=0.0, transfer_s=TRANSFER_S)
    prefill, decode = (EngineConfig(**settings, kv_role=role) for role in (KV_PRODUCER, KV_CONSUMER))
    fleet = Fleet(
        pools=(
            Pool(engine=prefill, step_times=times, num_servers=3, role=PREFILL, nic=nic),
            Pool(engine=decode, step_times=times, role=DECODE, nic=nic),
        ),
        handover=between,
    )
    load = open_load(rate_per_s=4.0, num_requests=600, input_len=4000, output_len=300, seed=1)
    simulation = Simulation(fleet, load)
    simulation.run()
    prefilled_s = simulation.arrays.handovers["prefilled_s"][: len(simulation.requests)]
    return float(np.median((simulation.requests["first_token_s"] - prefilled_s)[100:]))


def main() -> None:
    pulled_s = handover_s(Handover(dispatch_s=DISPATCH_S))
    for row in (*transfers(), Row("handover, 29 ms of it the transfer", HANDOVER_S, pulled_s)):
        print(f"{row.what:<36}{1e3 * row.measured_s:>9.2f} ms measured{1e3 * row.simulated_s:>9.2f} ms simulated"
              f"{row.error:>+8.1%}")  # fmt: skip
    for what, between in (("the same without a dispatch", Handover()), ("the same pushed", Handover(pushes=True))):
        print(f"{what:<36}{1e3 * handover_s(between):>32.2f} ms simulated")


if __name__ == "__main__":
    main()
