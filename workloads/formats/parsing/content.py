"""Which content the requests of a trace have in common: by block ids, by sessions that grow, by named prefixes."""

from array import array
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from workloads.requests import OPEN_END

Spans = list[tuple[int, int]]
"""(content id, first token position after it), as in a RequestTable; the last one ends at OPEN_END."""
_INFERRED_BLOCKS = 2  # fewer may be a system prompt alone, which others begin with too
_NO_CHAIN = -1
NO_SPANS: Spans = []


@dataclass(slots=True)
class Turn:
    """What the session's next turn may find of a request."""

    spans: Spans
    prompt_tokens: int
    total_tokens: int
    """Of prompt and answer."""
    ids: Sequence[int] = ()
    """Of full blocks."""
    node: int = 0
    """Of the last of them."""
    place: int = -1
    """Where the spans stand in the table, once they do."""
    goes_on: bool = False
    """Whether another turn has the same spans, so that a second one goes on in its own."""


class Contents:
    """Numbers contents as the requests of a trace come.

    Block ids are a tree: an id names a block only after the ids before it. All blocks that a request brings new have
    one content id. What has no id, the prompt's end and the answer, has its own; a turn that goes on from there begins
    with both.
    """

    def __init__(self) -> None:
        self._next_content = 0
        self._named: dict[Hashable, int] = {}
        self._roots: dict[Hashable, int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self._parent = array("q", [0])  # node 0 is none
        self._content = array("q", [0])  # of the node's last token
        self._end = array("q", [0])  # first token position after the node
        self._before: dict[int, Spans] = {}
        """Spans of a node's first tokens, where an answer ends within the block."""
        self._chain = array("q", [_NO_CHAIN])
        """The conversation that alone has had this block so far."""
        self._last_turn: dict[int, Turn] = {}
        self.num_continued = 0
        """Requests that were found to go on from an earlier one by their block ids alone."""

    def _new(self) -> int:
        self._next_content += 1
        return self._next_content - 1

    def named(self, name: Hashable) -> int:
        """The content that goes by this name, whatever came before."""
        if name not in self._named:
            self._named[name] = self._new()
        return self._named[name]

    def of_lengths(
        self,
        prompt_tokens: int,
        output_tokens: int,
        previous: Turn | None,
        prefix_tokens: int = 0,
        *,
        start: Spans = NO_SPANS,
    ) -> Turn:
        """A request without block ids, which begins as the session's previous turn did.

        It holds the whole of that turn, answer included, where it is as long; else as much as `prefix_tokens`.
        `start` is what a first turn begins with.
        """
        total = prompt_tokens + output_tokens
        if previous is None:
            return Turn([*_cut(start, prompt_tokens), (self._new(), OPEN_END)], prompt_tokens, total)
        holds_all = prompt_tokens >= previous.total_tokens
        if holds_all and not previous.goes_on:
            previous.goes_on = True
            return Turn(previous.spans, prompt_tokens, total, place=previous.place)
        shared = previous.total_tokens if holds_all else min(prefix_tokens, prompt_tokens)
        return Turn([*_cut(previous.spans, shared), (self._new(), OPEN_END)], prompt_tokens, total)

    def of_blocks(
        self,
        ids: Sequence[int],
        block_size: int,
        prompt_tokens: int,
        output_tokens: int,
        previous: Turn | None = None,
        *,
        scope: Hashable = None,
        in_session: bool = False,
    ) -> Turn:
        """A request whose prompt has these ids, each of `block_size` tokens; ids mean the same within one `scope`.

        It goes on from the `previous` turn, or, outside a session, from the only request that ended where its new
        blocks begin, if it is long enough to hold that one's answer.
        """
        node, num_known, spans = self._known(ids, block_size, prompt_tokens, previous, scope)
        chain = _NO_CHAIN if in_session else self._chain[node]
        before = previous if in_session else self._last_turn.get(chain)
        own = self._new()
        if before is not None and _goes_on(
            before, node, num_known, prompt_tokens, 0 if in_session else _INFERRED_BLOCKS
        ):
            spans = _cut(before.spans, before.total_tokens)
            num_mixed = min(-(-before.total_tokens // block_size), len(ids)) - num_known
            self.num_continued += not in_session
        else:
            num_mixed = 0
            self._branch(node)
            chain = _NO_CHAIN if in_session else own
        if len(ids) * block_size > prompt_tokens and num_known < len(ids):  # the prompt's last block has an id too
            _append(spans, own, prompt_tokens)
        spans.append((self._new() if spans and spans[-1][0] == own else own, OPEN_END))
        nodes = [self._parent[node], node]
        for place in range(num_known, num_known + num_mixed):
            end = min((place + 1) * block_size, prompt_tokens)
            nodes.append(self._add(nodes[-1], ids[place], _between(spans, place * block_size, end), end, chain))
        num_old = num_known + num_mixed
        if num_old < len(ids):
            ends = range((num_old + 1) * block_size, (len(ids) + 1) * block_size, block_size)
            nodes.extend(self._add_run(nodes[-1], ids[num_old:], own, ends, chain))
            self._end[-1] = min(self._end[-1], prompt_tokens)
        full = min(len(ids), prompt_tokens // block_size)
        turn = Turn(spans, prompt_tokens, prompt_tokens + output_tokens, ids[:full], nodes[full - num_known + 1])
        if not in_session:
            self._last_turn[chain] = turn
        return turn

    def _known(
        self, ids: Sequence[int], block_size: int, prompt_tokens: int, previous: Turn | None, scope: Hashable
    ) -> tuple[int, int, Spans]:
        """The last block that was there before, how many there are down to it, and their content."""
        if previous is not None and previous.ids and ids[: len(previous.ids)] == previous.ids:
            node, num_known = previous.node, len(previous.ids)
            spans = _cut(previous.spans, num_known * block_size)
        else:
            node, num_known, spans = self._root(scope), 0, []
        while num_known < len(ids):
            found = self._children.get((node, ids[num_known]))
            end = min((num_known + 1) * block_size, prompt_tokens)
            if found is None or self._end[found] < end:  # the id once named the block's beginning alone
                break
            node, num_known = found, num_known + 1
            for content, before_end in self._before.get(node, ()):
                _append(spans, content, min(before_end, end))
            _append(spans, self._content[node], end)
        return node, num_known, spans

    def _root(self, scope: Hashable) -> int:
        if scope not in self._roots:
            self._roots[scope] = self._add_node(0, 0, 0, _NO_CHAIN)
        return self._roots[scope]

    def _add(self, parent: int, block_id: int, pieces: Spans, end: int, chain: int) -> int:
        node = self._add_node(parent, pieces[-1][0], end, chain)
        self._children[parent, block_id] = node
        if len(pieces) > 1:
            self._before[node] = pieces[:-1]
        return node

    def _add_run(self, parent: int, ids: Sequence[int], content: int, ends: range, chain: int) -> range:
        """Blocks after one another that are one content."""
        count, node = len(ids), len(self._parent)
        nodes = range(node, node + count)
        parents = [parent, *nodes[:-1]][:count]
        self._children.update(zip(zip(parents, ids, strict=True), nodes, strict=True))
        self._parent.extend(parents)
        self._content.extend(array("q", [content]) * count)
        self._chain.extend(array("q", [chain]) * count)
        self._end.extend(array("q", ends))
        return nodes

    def _add_node(self, parent: int, content: int, end: int, chain: int) -> int:
        for column, value in ((self._parent, parent), (self._content, content), (self._end, end), (self._chain, chain)):
            column.append(value)
        return len(self._parent) - 1

    def _branch(self, node: int) -> None:
        """Another conversation has this block too, and so all before it."""
        while self._chain[node] != _NO_CHAIN:
            self._chain[node] = _NO_CHAIN
            node = self._parent[node]


def _goes_on(before: Turn, node: int, num_known: int, prompt_tokens: int, least: int) -> bool:
    return (
        least <= len(before.ids) == num_known
        and (node == before.node or not num_known)
        and prompt_tokens >= before.total_tokens
    )


def _append(spans: Spans, content: int, end: int) -> None:
    if spans and spans[-1][0] == content:
        spans[-1] = (content, end)
    elif not spans or spans[-1][1] < end:
        spans.append((content, end))


def _cut(spans: Spans, end: int) -> Spans:
    """The spans of the first tokens."""
    return _between(spans, 0, end)


def _between(spans: Spans, start: int, end: int) -> Spans:
    """The spans of the tokens [start, end)."""
    found: Spans = []
    for content, span_end in spans:
        if span_end > start:
            found.append((content, min(span_end, end)))
            if span_end >= end:
                break
    return found if end > start else []
