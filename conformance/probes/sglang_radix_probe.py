"""What SGLang's own radix tree does with sequences of operations. Run by an interpreter that has SGLang."""

import json
import sys

import sglang
from sglang.srt.mem_cache.base_prefix_cache import EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang_parts import make_allocator, make_rows, make_tree, settings, tokens_of


class Tree:
    """The tree with its pool, driven by operations as JSON brings them."""

    def __init__(self, case):
        self.pool = make_allocator(case["max_total_num_tokens"], case["page_size"])
        self.tree = make_tree(case, self.pool, make_rows(1, 1), case["tree_core"])
        self.sequences = case["sequences"]
        self.page_size = case["page_size"]
        self.locks = []

    def key(self, operation):
        return RadixKey(tokens_of(self.sequences[operation["sequence"]], operation["num_tokens"]))

    def match(self, operation):
        found = self.tree.match_prefix(MatchPrefixParams(key=self.key(operation)))
        if operation["locks"]:
            self.locks.append(self.tree.lock(found.last_device_node))
        return found.device_prefix_len

    def insert(self, operation):
        """Tokens that the tree had are freed as duplicates, as a request that computed them alone would."""
        num_tokens = operation["num_tokens"] // self.page_size * self.page_size
        if num_tokens > self.pool.available_size():
            self.tree.evict_for_alloc(EvictParams(num_tokens=num_tokens - self.pool.available_size()))
        slots = self.pool.alloc(num_tokens)
        if slots is None:
            return None
        given = {"priority": operation["priority"], "inserted_len": operation["inserted_len"]}
        return self.tree.insert(InsertParams(key=self.key(operation), value=slots, **given)).prefix_len

    def evict(self, operation):
        return self.tree.evict(EvictParams(num_tokens=operation["num_tokens"])).num_tokens_evicted

    def unlock(self, operation):
        if self.locks:
            self.tree.unlock(self.locks.pop(operation["lock"] % len(self.locks)))

    def order(self, operation):
        found = [
            self.tree.match_prefix(MatchPrefixParams(key=self.key({"sequence": number, "num_tokens": tokens})))
            for number, tokens in operation["waiting"]
        ]
        return list(self.tree.dfs_weight_order([each.last_device_node for each in found]))

    def do(self, operation):
        answer = getattr(self, operation["do"])(operation)
        return [answer, self.tree.evictable_size(), self.tree.protected_size(), self.pool.available_size()]


def main():
    print(json.dumps({"sglang_version": sglang.__version__}), flush=True)
    with open(sys.argv[1]) as cases:
        for line in cases:
            case = json.loads(line)
            override = settings(page_size=case["page_size"])
            tree = Tree(case)
            print(
                json.dumps({"name": case["name"], "answers": [tree.do(each) for each in case["operations"]]}),
                flush=True,
            )
            override.restore()


if __name__ == "__main__":
    main()
