"""Tenants whose users' conversations begin with a system prompt of their own."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from workloads.populations.sessions import SYSTEM_PROMPT_CONTENT, chained, is_chained
from workloads.requests import OPEN_END, IntArray, RequestTable

_TENANTS_FROM: Final = 2**40  # numbers below it are those of chunks


def with_own_prompts(table: RequestTable, system_prompt_tokens: int, own: Sequence[int | None]) -> RequestTable:
    """The requests with the system prompt of each one's tenant in place of the workload's; None: the workload's.

    Whatever users shared behind the workload's system prompt, they share behind their own with their tenant's alone.
    """
    assert table.tenancy is not None, "somebody says whose the requests are"
    longer = np.array([0 if tokens is None else tokens - system_prompt_tokens for tokens in own])
    has_own = np.array([tokens is not None for tokens in own])
    of = table.tenancy.of.astype(np.int64)
    whose = _whose_spans(table, of)
    is_open, content = table.span_end == OPEN_END, table.span_content
    shared = has_own[whose] & ((content == SYSTEM_PROMPT_CONTENT) | is_chained(content))
    return replace(
        table,
        prompt_tokens=(table.prompt_tokens + longer[of]).astype(np.int32),
        span_end=np.where(is_open, OPEN_END, table.span_end + longer[whose]).astype(np.int32),
        span_content=np.where(shared, chained(content, -_TENANTS_FROM - whose), content),
    )


def _whose_spans(table: RequestTable, of: IntArray) -> IntArray:
    """[m] the tenant of each span: requests that use the same spans are of one conversation."""
    count = table.span_count.astype(np.int64)
    row = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    found = np.zeros(table.num_spans, np.int64)
    found[table.span_start[row] + place] = of[row]
    return found
