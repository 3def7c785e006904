"""Let Ray Serve's own routers choose, in an interpreter that has ray[serve].

usage: python ray_serve_probe.py CASE.json > CHOICES.json

It needs no cluster: the tree of prefixes is called directly, queue lengths are those of the case, and random numbers
come from it.
"""

import asyncio
import json
import sys
from types import SimpleNamespace

import ray
from ray.llm._internal.serve.routing_policies.prefix_aware import prefix_aware_router, prefix_tree
from ray.serve._private.common import DeploymentID, ReplicaID
from ray.serve._private.request_router import pow_2_router


class Draws:
    """Random numbers of the case, in order."""

    def __init__(self, hashes):
        self.hashes, self.count = hashes, 0

    def randrange(self, limit):
        self.count += 1
        return self.hashes[self.count - 1] * limit >> 32

    def getrandbits(self, _bits):
        """Of two replicas, whether the first comes first: there is one other, which is drawn too."""
        first = self.randrange(2)
        self.randrange(1)
        return first == 0


class Called:
    """An actor's methods, called at once."""

    def __init__(self, of):
        self.of = of

    def __getattr__(self, name):
        return SimpleNamespace(remote=getattr(self.of, name))


def replica(number):
    return SimpleNamespace(
        replica_id=ReplicaID(unique_id=f"{number:03d}", deployment_id=DeploymentID(name="fleet")),
        max_ongoing_requests=1 << 60,
    )


def made(case):
    """A router as it is once replicas are known; what constructors ask a cluster for is left out."""
    has_tree = case["router"] == "prefix"
    kind = prefix_aware_router.PrefixCacheAffinityRouter if has_tree else pow_2_router.PowerOfTwoChoicesRequestRouter
    router = kind.__new__(kind)
    replicas = [replica(number) for number in range(case["replicas"])]
    router._replicas = {each.replica_id: each for each in replicas}
    router._replica_id_set = [each.replica_id for each in replicas]
    router._use_replica_queue_len_cache = True
    router.apply_locality_routing = lambda pending_request: router._replica_id_set
    if has_tree:
        tree = prefix_tree.PrefixTree()
        tree.add_tenants([each.replica_id.to_full_id_str() for each in replicas], 0.0)
        threshold = case["imbalanced_threshold"]
        router.initialize_state(
            imbalanced_threshold=float("inf") if threshold is None else threshold, tree_actor=Called(tree)
        )
    return router, replicas


async def choices(case):
    draws = pow_2_router.random = Draws(case["hashes"])
    ray.get = lambda value: value
    router, replicas = made(case)
    found = []
    for request in case["requests"]:
        queues = dict(zip(router._replica_id_set, request["queues"], strict=True))
        router._replica_queue_len_cache = queues
        prompt = SimpleNamespace(prompt=request["prompt"])
        pending = SimpleNamespace(args=[prompt], metadata=SimpleNamespace(multiplexed_model_id=""))
        before = draws.count
        (ranked,) = await router.choose_replicas(replicas, pending)
        if case["router"] == "prefix":
            if not uneven(case, request["queues"]):
                draws.count = before  # the two at random were not asked
            router.on_request_routed(pending, router._replica_id_set[request["chosen"]], None)
        chosen = await router._select_from_candidate_replicas(ranked, 0)
        found.append(replicas.index(chosen))
    return found


def uneven(case, queues):
    threshold = case["imbalanced_threshold"]
    return threshold is not None and max(queues) - min(queues) > threshold


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        print(json.dumps(asyncio.run(choices(json.load(file)))))
