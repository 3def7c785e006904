"""Which content requests of a trace have in common, numbered one request at a time: the compiled numbering's twin."""

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
    num_blocks: int = 0
    """Full ones that have ids."""
    run: "_Run | None" = None
    """Of the last of them, or below."""
    place: int = -1
    """Where the spans stand in the table, once they do."""
    goes_on: bool = False
    """Whether another turn has the same spans, so that a second one goes on in its own."""


class _Run:
    """Blocks one after the other that one request brought; an id names a block only after the ids before it."""

    __slots__ = ("before", "chain", "children", "content", "end", "ids", "parent", "start")

    def __init__(self, parent: "_Run | None", start: int, ids: Sequence[int], pieces: Spans, chain: int) -> None:
        self.parent, self.start, self.ids, self.chain = parent, start, ids, chain
        self.before = pieces[:-1]  # spans of the first tokens, where an answer ends within the first block
        self.content, self.end = pieces[-1]  # of the tokens after these; the last block may be a partial one
        self.children: dict[int, _Run] = {}


class Contents:
    """Numbers contents as the requests of a trace come.

    Block ids are a radix tree of runs. All blocks that a request brings new have one content id. What has no id, the
    prompt's end and the answer, has its own; a turn that goes on from there begins with both.
    """

    def __init__(self) -> None:
        self._next_content = 0
        self._named: dict[Hashable, int] = {}
        self._roots: dict[Hashable, _Run] = {}
        self._last_turn: dict[int, Turn] = {}  # of conversations, which alone have had a run so far
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
        run, num_known, spans = self._known(ids, block_size, prompt_tokens, scope)
        chain = _NO_CHAIN if in_session else run.chain
        before = previous if in_session else self._last_turn.get(chain)
        own = self._new()
        if before is not None and _goes_on(
            before, run, num_known, prompt_tokens, 0 if in_session else _INFERRED_BLOCKS
        ):
            spans = _cut(before.spans, before.total_tokens)
            num_mixed = min(-(-before.total_tokens // block_size), len(ids)) - num_known
            self.num_continued += not in_session
        else:
            num_mixed = 0
            _branch(run)
            chain = _NO_CHAIN if in_session else own
        if len(ids) * block_size > prompt_tokens and num_known < len(ids):  # the prompt's last block has an id too
            _append(spans, own, prompt_tokens)
        spans.append((self._new() if spans and spans[-1][0] == own else own, OPEN_END))
        num_old = num_known + num_mixed
        for place in range(num_known, num_old):
            end = min((place + 1) * block_size, prompt_tokens)
            run = _grown(run, place, ids[place : place + 1], _between(spans, place * block_size, end), chain)
        if num_old < len(ids):
            run = _grown(run, num_old, ids[num_old:], [(own, min(len(ids) * block_size, prompt_tokens))], chain)
        full = min(len(ids), prompt_tokens // block_size)
        turn = Turn(spans, prompt_tokens, prompt_tokens + output_tokens, full, run)
        if not in_session:
            self._last_turn[chain] = turn
        return turn

    def _known(
        self, ids: Sequence[int], block_size: int, prompt_tokens: int, scope: Hashable
    ) -> tuple[_Run, int, Spans]:
        """The run that ends with the last block that was there before, how many there are, and their content."""
        root = (scope, block_size)
        if root not in self._roots:
            self._roots[root] = _Run(None, 0, (), [(0, 0)], _NO_CHAIN)
        run, num_known, spans = self._roots[root], 0, NO_SPANS[:]
        while num_known < len(ids):
            found = run.children.get(ids[num_known])
            if found is None:
                break
            count = _num_equal(found.ids, ids[num_known : num_known + len(found.ids)])
            end = min((num_known + count) * block_size, prompt_tokens)
            if count == len(found.ids) and found.end < end:  # the last id once named the block's beginning alone
                count -= 1
                end = (num_known + count) * block_size
            if count == 0:
                break
            for content, before_end in found.before:
                _append(spans, content, min(before_end, end))
            _append(spans, found.content, end)
            num_known += count
            run = found if count == len(found.ids) else _split(found, count, num_known * block_size)
            if run is not found:
                break
        return run, num_known, spans


def _grown(run: _Run, start: int, ids: Sequence[int], pieces: Spans, chain: int) -> _Run:
    """The run that goes on from another with these blocks."""
    found = run.children[ids[0]] = _Run(run, start, ids, pieces, chain)
    return found


def _split(run: _Run, count: int, end: int) -> _Run:
    """The first blocks of a run as one of their own, which the others go on from; their last token is before `end`."""
    assert run.parent is not None, "a root has no blocks"
    first = _grown(run.parent, run.start, run.ids[:count], [*run.before, (run.content, end)], run.chain)
    first.children[run.ids[count]] = run
    run.parent, run.start, run.ids, run.before = first, run.start + count, run.ids[count:], []
    return first


def _branch(run: _Run) -> None:
    """Another conversation has these blocks too, and so all before them."""
    above: _Run | None = run
    while above is not None and above.chain != _NO_CHAIN:
        above.chain = _NO_CHAIN
        above = above.parent


def _num_equal(first: Sequence[int], second: Sequence[int]) -> int:
    """How many ids are the same before one differs."""
    if first == second:
        return len(first)
    return next((at for at, (one, other) in enumerate(zip(first, second, strict=False)) if one != other), len(second))


def _goes_on(before: Turn, run: _Run, num_known: int, prompt_tokens: int, least: int) -> bool:
    if not (least <= before.num_blocks == num_known and prompt_tokens >= before.total_tokens):
        return False
    last = before.run
    while last is not None and last.start >= num_known:  # runs are split, their ends stay what they were
        last = last.parent
    return last is run or not num_known


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
