"""What users were drawn to do, turn by turn, before anyone serves them."""

import math
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from workloads.requests import NO_PREDECESSOR, OPEN_END, BoolArray, FloatArray, IntArray, RequestTable

SYSTEM_PROMPT_CONTENT: Final = 0
CONVERSATIONS_PER_USER: Final = 2**24
"""Room for content ids: conversation c of user u has the id 1 + u * CONVERSATIONS_PER_USER + c."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Sessions:
    """[users, turns] arrays, times in seconds, lengths in tokens."""

    first_arrival_s: FloatArray
    """[users] of each one's first turn."""
    think_s: FloatArray
    """Before each turn; 0 before the first."""
    prompt_tokens: IntArray
    """The whole context sent."""
    output_tokens: IntArray
    conversation: IntArray
    """Counts each user's conversations; -1 never appears."""
    system_prompt_tokens: int

    @property
    def num_users(self) -> int:
        return len(self.first_arrival_s)

    def head(self, num_users: int) -> "Sessions":
        """The first users."""
        names = ("first_arrival_s", "think_s", "prompt_tokens", "output_tokens", "conversation")
        return replace(self, **{name: getattr(self, name)[:num_users] for name in names})

    def arrival_s(self, response_s: FloatArray | float = 0.0) -> FloatArray:
        """[users, turns] when each turn arrives if every answer takes `response_s`: with 0, no turn can be sooner."""
        gaps = self.think_s.copy()
        gaps[:, 0] = self.first_arrival_s
        gaps[:, 1:] += np.broadcast_to(response_s, gaps.shape)[:, :-1]
        return np.cumsum(gaps, axis=1)

    def new_tokens(self) -> IntArray:
        """Prompt tokens that no earlier turn of the conversation and no system prompt holds."""
        cached = np.full_like(self.prompt_tokens, self.system_prompt_tokens)
        goes_on = self.conversation[:, 1:] == self.conversation[:, :-1]
        said = self.prompt_tokens[:, :-1] + self.output_tokens[:, :-1]
        cached[:, 1:] = np.where(goes_on, said, cached[:, 1:])
        return self.prompt_tokens - cached

    def table(self, until_s: float = math.inf) -> RequestTable:
        """Rows user by user; each user's last is the first that cannot arrive by `until_s`.

        Two spans per conversation, shared by its turns: the system prompt, and what is the conversation's own.
        """
        keep = np.ones(self.prompt_tokens.shape, bool)
        keep[:, 1:] = self.arrival_s()[:, :-1] <= until_s
        users, turns = np.nonzero(keep)
        n, is_first = len(users), turns == 0
        content = 1 + users * CONVERSATIONS_PER_USER + self.conversation[keep]
        spans = _spans(content, self.system_prompt_tokens)
        return RequestTable(
            arrival_s=np.where(is_first, self.first_arrival_s[users], np.nan),
            follows=np.where(is_first, NO_PREDECESSOR, np.arange(n) - 1),
            think_s=self.think_s[keep],
            prompt_tokens=self.prompt_tokens[keep].astype(np.int32),
            output_tokens=self.output_tokens[keep].astype(np.int32),
            priority=np.zeros(n, np.int32),
            **spans,
        )


def _spans(content: IntArray, system_prompt_tokens: int) -> dict[str, Any]:
    """The columns of `RequestTable` that tell what requests share; rows of one conversation stand together."""
    opens: BoolArray = np.concatenate([[True], content[1:] != content[:-1]])
    each = 2 if system_prompt_tokens else 1
    named = np.full((int(opens.sum()), each), SYSTEM_PROMPT_CONTENT, np.int64)
    named[:, -1] = content[opens]
    end = np.full(named.shape, OPEN_END, np.int32)
    if system_prompt_tokens:
        end[:, 0] = system_prompt_tokens
    return {
        "span_start": (np.cumsum(opens) - 1) * each,
        "span_count": np.full(len(content), each, np.int32),
        "span_content": named.ravel(),
        "span_end": end.ravel(),
    }
