"""What prompts have in common in the KV cache, by their token ids."""

from collections import OrderedDict
from typing import Protocol

import numpy as np

from workloads.requests import OPEN_END, IntArray


class Contents(Protocol):
    """Names the content of requests as they come, as a `RequestTable` does."""

    def spans(self, tokens: IntArray, salt: str = "") -> list[tuple[int, int]]:
        """The content of a request's tokens, its answer's included; `salt` keeps prefixes apart (`cache_salt`)."""


class Blocks:
    """Contents of an engine that shares full blocks.

    vLLM names a full block by a hash of its tokens and of all before them. The same is done here; blocks that a request
    is the first to have share one content id. `lookahead` tokens after a block belong to its name (vLLM, EAGLE). At
    most `most` blocks are remembered, the latest used: more than the KV cache can hold.
    """

    def __init__(self, block_size: int, *, lookahead: int, most: int) -> None:
        self._block_size, self._lookahead, self._most = block_size, lookahead, most
        self._contents: OrderedDict[int, int] = OrderedDict()
        self._next = 0

    def spans(self, tokens: IntArray, salt: str = "") -> list[tuple[int, int]]:
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


class _Run:
    """Tokens that some sequence has after those of the runs before it."""

    def __init__(self, tokens: IntArray, content: int, before: "dict[object, _Run]", key: object) -> None:
        self.tokens, self.content = tokens, content
        self.following: dict[object, _Run] = {}  # by their first token
        self.before, self.key = before, key  # where it is found
        before[key] = self


class Tokens:
    """Contents of an engine that shares every token, as SGLang's radix tree does.

    At most `most` tokens are remembered, the latest used: more than the KV cache can hold.
    """

    def __init__(self, *, most: int) -> None:
        self._most, self._size, self._next = most, 0, 0
        self._first: dict[object, _Run] = {}
        self._used: OrderedDict[_Run, None] = OrderedDict()  # a run later than those that follow it

    def spans(self, tokens: IntArray, salt: str = "") -> list[tuple[int, int]]:
        path, runs, at, key = list[_Run](), self._first, 0, object()
        while at < len(tokens):
            key = (salt, int(tokens[at])) if at == 0 else int(tokens[at])
            if (run := runs.get(key)) is None:
                break
            shared = _shared(run.tokens, tokens[at:])
            path.append(run if shared == len(run.tokens) else self._split(run, shared))
            runs, at = path[-1].following, at + shared
        if at < len(tokens):
            path.append(_Run(tokens[at:].copy(), self._next, runs, key))
            self._size += len(tokens) - at
            self._next += 1
        for run in reversed(path):
            self._used[run] = None
            self._used.move_to_end(run)
        self._forget()
        found, at = list[tuple[int, int]](), 0
        for run in path:
            at += len(run.tokens)
            if found and found[-1][0] == run.content:
                found.pop()
            found.append((run.content, at))
        return [*found[:-1], (found[-1][0], OPEN_END)]

    @staticmethod
    def _split(run: _Run, at: int) -> _Run:
        """Cut a run in two of the same content; the front is new."""
        front = _Run(run.tokens[:at], run.content, run.before, run.key)
        run.tokens, run.before, run.key = run.tokens[at:], front.following, int(run.tokens[at])
        front.following[run.key] = run
        return front

    def _forget(self) -> None:
        while self._size > self._most and len(self._used) > 1:
            run, _ = self._used.popitem(last=False)
            assert not run.following, "a run was used before what follows it"
            del run.before[run.key]
            self._size -= len(run.tokens)


def _shared(one: IntArray, other: IntArray) -> int:
    """How many tokens two sequences begin with in common."""
    count = min(len(one), len(other))
    differ = np.flatnonzero(one[:count] != other[:count])
    return int(differ[0]) if len(differ) else count
