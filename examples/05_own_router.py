"""A router of your own: sessions stay on their engine unless it is much busier than the emptiest one."""

from headcount import Simulation, View, load_workload, request_times, resolve

TOLERATED_DIFFERENCE = 8


class LoyalRouter:
    """Stay where the session's prefix is cached, within reason."""

    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, view: View) -> int:
        outstanding, last = view.outstanding, view.last
        emptiest = outstanding.index(min(outstanding))
        if last is None or outstanding[last] - outstanding[emptiest] > TOLERATED_DIFFERENCE:
            return emptiest
        return last


if __name__ == "__main__":
    deployment = resolve("llama-3.1-8b", "l40s", max_model_len=16_384)
    table = load_workload("chat").draw(num_users=40, turns_per_user=4, seed=1, max_model_len=16_384)
    simulation = Simulation(deployment.fleet(num_replicas=2, router=LoyalRouter), table)
    simulation.run()
    requests = simulation.requests
    print(f"{len(requests)} requests, mean TTFT {request_times(requests).ttft_s.mean() * 1e3:.0f} ms")
    print(f"prefix hits: {requests['cached_tokens'].sum() / requests['prompt'].sum():.0%} of prompt tokens")
