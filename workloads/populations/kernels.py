"""Compiled loops over the turns of users."""

from typing import Any, Final

import numpy as np

from workloads.kernels import entry_point
from workloads.populations.at_limit import BEGINS_ANEW, GOES_ON, OPENS, SUMMARY
from workloads.requests import BoolArray, FloatArray, Int32Array, IntArray
from workloads.streams import NUMBERS_AT_ONCE, Keys, next_numbers

_NEIGHBOURS: Final = 16  # users whose numbers lie in one cache line


@entry_point
def take_known(  # noqa: PLR0917  numba takes arrays one by one
    keys: Keys, how_many: Int32Array, table: Int32Array, found: Int32Array, doubtful: IntArray, doubtful_u: FloatArray
) -> int:
    """Fill in the counts that the streams' numbers have by the table's cells of equal width, [keys, users].

    Places whose cell is below 0 are listed, with their numbers, and counted.
    """
    num_doubtful, users, cells = 0, found.shape[1], float(len(table))
    for first in range(0, users, NUMBERS_AT_ONCE):
        end = min(first + NUMBERS_AT_ONCE, users)
        most = 0
        for user in range(first, end):
            most = max(most, how_many[user])
        for row in range(most):
            numbers = next_numbers(first // NUMBERS_AT_ONCE, keys[row, 0], keys[row, 1])
            for user, u in zip(range(first, end), numbers):  # noqa: B905  numba knows no strict
                count = table[np.int32(u * cells)]
                found[row, user] = count
                if count < 0:
                    doubtful[num_doubtful] = row * users + user
                    doubtful_u[num_doubtful] = u
                    num_doubtful += 1
    return num_doubtful


@entry_point
def find_ranks(u: FloatArray, cumulative: FloatArray, guide: IntArray, found: IntArray) -> None:
    """Fill in how many of the rising `cumulative` are at most each u of [0, 1).

    `guide` has that number for each end of cells of equal width, whose number is a power of 2.
    """
    cells = float(len(guide) - 1)
    for place in range(len(u)):
        cell = np.int64(u[place] * cells)
        low, high = guide[cell], guide[cell + 1]
        while low < high:
            middle = (low + high) // 2
            if cumulative[middle] <= u[place]:
                low = middle + 1
            else:
                high = middle
        found[place] = low


@entry_point
def take_turns(  # noqa: PLR0917  numba takes arrays one by one
    said: IntArray,
    turns_left: IntArray,
    conversation: IntArray,
    how_many: Int32Array,
    room: int,
    turns: tuple[Int32Array, Int32Array, Int32Array, Int32Array],
    system_prompt_tokens: int,
    rows: Any,
) -> None:
    """Let each user take `how_many` turns: the first of [turns, users] tokens added, of the output, new turns, lost.

    A turn that does not fit alone is shortened, as by `draws.fitted`.
    `rows` are filled in where there are any, [users, turns] each: prompt, output, conversation; tokens said before.
    """
    added, output, num_turns, lost = turns
    for first in range(0, len(said), _NEIGHBOURS):
        some = range(first, min(first + _NEIGHBOURS, len(said)))
        most = 0  # numba's own maximum would import its linear algebra
        for user in some:
            most = max(most, how_many[user])
        for turn in range(most):
            for user in some:
                if turn >= how_many[user]:
                    continue
                before, prompt, answer = said[user], int(added[turn, user]), int(output[turn, user])
                if prompt + answer > room:
                    prompt = min(prompt, max(room - answer, room // 2))
                    answer = min(answer, room - prompt)
                opens = int((turns_left[user] == 0) | (before + prompt + answer > room))  # as a number: no guess fails
                before *= 1 - opens
                turns_left[user] = (1 - opens) * turns_left[user] + opens * num_turns[turn, user] - 1
                conversation[user] += opens
                said[user] = before + prompt + answer
                if lost.size:
                    said[user] -= lost[turn, user]
                if len(rows):
                    rows[0, user, turn] = system_prompt_tokens + before + prompt
                    rows[1, user, turn] = answer
                    rows[2, user, turn] = conversation[user]
                    if len(rows) > 3:
                        rows[3, user, turn] = before


@entry_point
def take_turns_on(  # noqa: PLR0917  numba takes arrays one by one
    said: IntArray,
    turns_left: IntArray,
    conversation: IntArray,
    was_summarized: BoolArray,
    how_many: Int32Array,
    room: int,
    at_limit: tuple[int, int],
    turns: tuple[Int32Array, Int32Array, Int32Array, Int32Array],
    system_prompt_tokens: int,
    rows: Any,
) -> None:
    """As `take_turns`, but conversations go on: `at_limit` has the tokens that stay, and those of a summary.

    A turn before which a summary is asked for is drawn anew. `rows` have, fifth, what each turn is. A conversation
    has a new number from where its prompts begin anew.
    """
    added, output, num_turns, lost = turns
    kept, summary_tokens = at_limit
    for user in range(len(said)):
        for turn in range(how_many[user]):
            before, prompt, answer = said[user], int(added[turn, user]), int(output[turn, user])
            if prompt + answer > room:
                prompt = min(prompt, max(room - answer, room // 2))
                answer = min(answer, room - prompt)
            what = GOES_ON
            if was_summarized[user]:
                what, before = BEGINS_ANEW, min(before, room - prompt - answer)
            elif turns_left[user] == 0:
                what, before = OPENS, 0
            elif before + prompt + answer > room:
                what = SUMMARY if summary_tokens > 0 else BEGINS_ANEW
                before = before if summary_tokens > 0 else min(before, kept, room - prompt - answer)
            was_summarized[user] = what == SUMMARY
            conversation[user] += what in (OPENS, BEGINS_ANEW)
            if what == SUMMARY:
                prompt, answer, said[user] = 0, summary_tokens, summary_tokens
            else:
                turns_left[user] = (num_turns[turn, user] if what == OPENS else turns_left[user]) - 1
                said[user] = before + prompt + answer
                if lost.size:
                    said[user] -= lost[turn, user]
            if len(rows):
                rows[0, user, turn] = system_prompt_tokens + before + prompt
                rows[1, user, turn] = answer
                rows[2, user, turn] = conversation[user]
                rows[3, user, turn] = before
                rows[4, user, turn] = what


@entry_point
def put_think_times(  # noqa: PLR0917  numba takes arrays one by one
    found: FloatArray,
    blocks: IntArray,
    first: int,
    until_s: float,
    think_s: FloatArray,
    at_s: FloatArray,
    how_many: Int32Array,
) -> None:
    """Put turns of blocks of users in their places, from turn `first` on, until they are later than a time."""
    for place in range(len(found)):
        user = NUMBERS_AT_ONCE * blocks[place // NUMBERS_AT_ONCE] + place % NUMBERS_AT_ONCE
        if user >= len(at_s):
            continue
        for turn in range(found.shape[1]):
            if at_s[user] > until_s:
                break
            think_s[user, first + turn] = found[place, turn]
            at_s[user] += found[place, turn]
            how_many[user] += 1


@entry_point
def count_turns(
    think_s: FloatArray, first_s: FloatArray, met_at: IntArray, until_s: FloatArray, count: IntArray
) -> None:
    """Count each user's turns that arrive by a time at the soonest; all before the first of them arrive with it."""
    for user in range(len(count)):
        gaps_s, turn = 0.0, met_at[user] + 1
        if first_s[user] > until_s[user]:
            turn = 0
        else:
            while turn < think_s.shape[1]:
                gaps_s += think_s[user, turn]
                if gaps_s + first_s[user] > until_s[user]:
                    break
                turn += 1
        count[user] = turn


@entry_point
def lay_rows(  # noqa: PLR0917  numba takes arrays one by one
    begin: IntArray,
    length: IntArray,
    first_s: FloatArray,
    think_s: FloatArray,
    prompt_tokens: Int32Array,
    output_tokens: Int32Array,
    conversation: Int32Array,
    most_conversations: int,
    arrival: FloatArray,
    think: FloatArray,
    follows: IntArray,
    opened: IntArray,
    conversations: IntArray,
    prompt: Int32Array,
    output: Int32Array,
) -> int:
    """Fill in the rows of a table, of each user so many turns from `begin` on, and count the conversations in them.

    `opened` are the contents of these, `conversations` says which is each row's.
    """
    row, num_opened = 0, 0
    for user in range(len(begin)):
        for turn in range(begin[user], begin[user] + length[user]):
            is_first = turn == begin[user]
            arrival[row] = first_s[user] if is_first else np.nan
            think[row] = 0.0 if is_first else think_s[user, turn]
            follows[row] = -1 if is_first else row - 1
            prompt[row], output[row] = prompt_tokens[user, turn], output_tokens[user, turn]
            if is_first or conversation[user, turn] != conversation[user, turn - 1]:
                opened[num_opened] = 1 + user * most_conversations + int(conversation[user, turn])
                num_opened += 1
            conversations[row] = num_opened - 1
            row += 1
    return num_opened
