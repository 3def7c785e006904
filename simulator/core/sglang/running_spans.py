"""The runs of content that the radix tree stands on, in fleets that drop ended requests while they run."""

from simulator.core.jit import entry_point
from simulator.core.layout import NONE
from simulator.core.sglang.tree import span_at
from simulator.core.state import Arrays
from simulator.core.types import Spans


@entry_point
def keep_spans(a: Arrays, spans: Spans, size: int) -> int:
    """Copy the runs of every node behind the first `size` of `spans`, which will take the place of all there are.

    Returns how many there are then; where that is more than `spans` can hold, nothing is changed.
    """
    t = a.sglang
    for is_moving in range(2):
        end = size
        for replica in range(a.replicas.shape[0]):
            bigrams = t.pools[a.replicas[replica].pool].bigrams
            root = t.engines[replica].root
            for node in range(root + 1, root + t.engines[replica].num_nodes):
                of = t.nodes[node]
                if of.parent == NONE:  # given up
                    continue
                first = of.span
                count = span_at(a.spans, first, of.end - 1 + bigrams) + 1 - first
                if is_moving == 1:
                    of.span = end
                    for place in range(count):
                        spans[end + place] = a.spans[first + place]
                end += count
        if end > spans.shape[0]:
            break
    return end
