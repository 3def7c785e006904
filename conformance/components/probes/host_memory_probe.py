"""How many chunks vLLM's own `CPUOffloadingSpec` makes of so much host memory; run by an interpreter with vLLM.

usage: python host_memory_probe.py CASES.jsonl > CHUNKS.jsonl
"""

import json
import sys

from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec

CPUOffloadingSpec._uses_shared_region = lambda _: True  # as on NVIDIA's GPUs


def config_of(case):
    """What `build_offloading_config` hands to the backend, for one group of full attention."""
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(tokens_per_block=16, layer_names=("layer",), group_id=0),),
        worker_kv_bytes_per_block=case["rank_bytes"],
        enable_kv_cache_events=False,
        extra_config={"cpu_bytes_to_use": case["kv_offloading_size"] * (1 << 30)},
        engine_id="engine",
        model=OffloadingModelConfig(name="model", dtype="bfloat16"),
        cache=OffloadingCacheConfig(tokens_per_hash=16, blocks_per_chunk=1),
        parallel=OffloadingParallelConfig(
            rank=0, world_size=case["tp"], tp_size=case["tp"], pp_size=1, pcp_size=1, dcp_size=1,
            data_parallel_index=0, data_parallel_size=1, data_parallel_rank_local=0, is_parallelism_agnostic=False,
        ),
        replicated_layout=case["is_kept_once"],
        canonical_layout=False,
        kv_cache_layout="NHD",
    )  # fmt: skip


def main():
    with open(sys.argv[1]) as cases:
        for line in cases:
            case = json.loads(line)
            print(json.dumps({"name": case["name"], "num_chunks": CPUOffloadingSpec(config_of(case)).num_chunks}))


if __name__ == "__main__":
    main()
