"""Which blocks of the KV cache prompts have in common, by their token ids."""

from collections import OrderedDict

from workloads.requests import OPEN_END, IntArray


class Contents:
    """Names the content of requests as they come, as a `RequestTable` does.

    vLLM names a full block by a hash of its tokens and of all before them. The same is done here; blocks that a request
    is the first to have share one content id. `lookahead` tokens after a block belong to its name (vLLM, EAGLE). At
    most `most` blocks are remembered, the latest used: more than the KV cache can hold.
    """

    def __init__(self, block_size: int, *, lookahead: int, most: int) -> None:
        self._block_size, self._lookahead, self._most = block_size, lookahead, most
        self._contents: OrderedDict[int, int] = OrderedDict()
        self._next = 0

    def spans(self, tokens: IntArray, salt: str = "") -> list[tuple[int, int]]:
        """The content of a request's tokens, its answer's included; `salt` keeps prefixes apart (`cache_salt`)."""
        keys = self._keys(tokens, salt)
        found: list[tuple[int, int]] = []
        for place, key in enumerate(keys, 1):
            content = self._contents.setdefault(key, self._next)
            end = place * self._block_size + self._lookahead
            if found and found[-1][0] == content:
                found.pop()
            found.append((content, end))
        for key in reversed(keys):  # the beginning is used by most, so it is forgotten last
            self._contents.move_to_end(key)
        while len(self._contents) > self._most:
            self._contents.popitem(last=False)
        last = found.pop()[0] if found else self._next  # what fills no block is found by nobody
        self._next += 1
        return [*found, (last, OPEN_END)]

    def _keys(self, tokens: IntArray, salt: str) -> list[int]:
        """Of each full block, chained."""
        data, width = tokens.astype("<i8").tobytes(), 8
        key, start, keys = hash(salt), 0, []
        for end in range(self._block_size + self._lookahead, len(tokens) + 1, self._block_size):
            key = hash((key, data[width * start : width * end]))
            keys.append(key)
            start = end
        return keys
