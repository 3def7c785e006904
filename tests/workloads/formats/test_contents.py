"""Contents that requests share: the compiled numbering against one request at a time."""

from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workloads.formats.simple_contents import Contents, Spans, Turn
from workloads.formats.parsing.rows import Request, Rows

BLOCK = 16


def requests(random: Random) -> list[Request]:
    """Conversations that grow, branch and share blocks, within sessions and outside, some without ids."""
    few_ids, in_sessions = random.choice([3, 6, 10**6]), random.random() < 0.5
    found: list[Request] = []
    for _ in range(random.randint(1, 40)):
        earlier = random.choice(found) if found and random.random() < 0.7 else None
        prompt, ids = random.choice([1, 7, 16, 17, 40, 90]), list[int]()
        if earlier is not None and random.random() < 0.5:
            said = earlier.prompt_tokens + earlier.output_tokens
            ids, prompt = list(earlier.ids[: earlier.prompt_tokens // BLOCK]), said + random.choice([0, 1, 9, 30])
        elif earlier is not None:
            ids = list(earlier.ids[: random.randint(0, len(earlier.ids))])
            prompt = max(len(ids) * BLOCK + random.choice([0, 1, 15, 16]), 1)
        needed = prompt // BLOCK + (prompt % BLOCK > 0 and random.random() < 0.7)
        ids = ids[:needed] + [random.randrange(few_ids) for _ in range(needed - len(ids))]
        if random.random() < 0.05:
            ids = [each * random.choice([2**63, -(2**62)]) for each in ids]
        found.append(
            Request(
                prompt_tokens=prompt,
                output_tokens=random.choice([1, 3, 15, 16, 50]),
                arrival_s=0.0,
                session=random.choice("abc") if in_sessions and random.random() < 0.7 else None,
                think_s=random.choice([None, 1.0]),
                ids=ids if random.random() < 0.9 else (),
                block_size=BLOCK,
                scope=random.choice([None, "x"]) if random.random() < 0.2 else None,
                prefix_tokens=random.choice([0, 5]),
                starts_with=random.choice([None, ("system", 12), ("other", 5)]),
            )
        )
    return found


def simply_numbered(found: list[Request]) -> list[Spans]:
    """Each request's spans."""
    contents, last, spans = Contents(), dict[str, Turn](), list[Spans]()
    for each in found:
        key = str(each.session)
        previous = last.get(key) if each.session is not None else None
        lengths = each.prompt_tokens, each.output_tokens
        if each.ids:
            in_session = each.session is not None
            turn = contents.of_blocks(each.ids, BLOCK, *lengths, previous, scope=each.scope, in_session=in_session)
        else:
            start = [(contents.named(each.starts_with[0]), each.starts_with[1])] if each.starts_with else []
            turn = contents.of_lengths(*lengths, previous, each.prefix_tokens, start=start)
        last[key] = turn
        spans.append(turn.spans)
    return spans


def compare(seed: int) -> None:
    found = requests(Random(seed))
    rows = Rows(Path("trace"))
    for each in found:
        rows.add("", each)
    table = rows.recorded().table
    table.validate()
    for row, expected in enumerate(simply_numbered(found)):
        part = slice(table.span_start[row], table.span_start[row] + table.span_count[row])
        pairs = zip(table.span_content[part].tolist(), table.span_end[part].tolist(), strict=True)
        assert list(pairs) == expected, f"row {row} of seed {seed}"


@settings(max_examples=100)
@given(st.integers(0, 2**32))
def test_contents_are_numbered_as_one_request_at_a_time_numbers_them(seed: int) -> None:
    compare(seed)


@pytest.mark.slow
def test_thousands_of_traces_are_numbered_so() -> None:
    for seed in range(5000):
        compare(seed)


def test_more_runs_than_there_was_room_for_at_first() -> None:
    """Tables of runs, children, pieces and spans grow."""
    random, rows, contents = Random(1), Rows(Path("trace")), Contents()
    expected = []
    for _ in range(3000):
        ids = [random.randrange(4) for _ in range(random.randint(1, 12))]
        request = Request(prompt_tokens=BLOCK * len(ids), output_tokens=30, arrival_s=0.0, ids=ids, block_size=BLOCK)
        rows.add("", request)
        expected.append(contents.of_blocks(ids, BLOCK, BLOCK * len(ids), 30).spans)
    table = rows.recorded().table
    np.testing.assert_array_equal(table.span_count, [len(each) for each in expected])
    np.testing.assert_array_equal(table.span_content, [content for each in expected for content, _ in each])
    np.testing.assert_array_equal(table.span_end, [end for each in expected for _, end in each])
