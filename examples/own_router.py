"""A router of your own: sessions stay on their replica unless it is much busier than the emptiest one."""

from collections.abc import Sequence

from headcount import (
    ReplicaLoad,
    least_outstanding,
    load_workload,
    request_times,
    resolve,
    run_simpy_fleet,
)

TOLERATED_DIFFERENCE = 8


def loyal_router(loads: Sequence[ReplicaLoad], last: int | None) -> int:
    """Stay where the session's prefix is cached, within reason."""
    emptiest = least_outstanding()(loads, last)
    if last is None or loads[last].outstanding - loads[emptiest].outstanding > TOLERATED_DIFFERENCE:
        return emptiest
    return last


deployment = resolve("llama-3.1-8b", "l40s", max_model_len=16_384)
table = load_workload("chat").draw(num_users=40, turns_per_user=4, seed=1, max_model_len=16_384)
requests = run_simpy_fleet(deployment.fleet(num_replicas=2, router="least-outstanding"), table, loyal_router)
times = request_times(requests)
print(f"{len(requests)} requests, mean TTFT {times.ttft_s.mean() * 1e3:.0f} ms")
print(f"prefix hits: {requests['cached_tokens'].sum() / requests['prompt'].sum():.0%} of prompt tokens")
