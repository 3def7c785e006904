"""Some of a trace's answers end at max_model_len."""

from collections.abc import Iterator

import numpy as np

from headcount.answers.notes import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    if facts.requests is None or facts.max_model_len is None:
        return
    asked = facts.requests.output_tokens.astype(np.int64)
    room = facts.max_model_len - facts.requests.prompt_tokens.astype(np.int64)
    cut = (asked > room) & (room > 0)  # prompts that do not fit at all are refused
    if cut.any():
        worst = int(np.argmax(np.where(cut, asked - room, 0)))
        share = f"{int(cut.sum()):,} of {facts.requests.num_requests:,} answers"
        first = f"that of request {worst:,} after {room[worst]:,} of its {asked[worst]:,} tokens"
        yield f"{share} end at max_model_len {facts.max_model_len:,}: {first}", ""
