"""What is said or refused of a load that would not be served as it was asked for."""

import sys
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from workloads.requests import RequestTable

LONGEST_RUN_S = (
    1e10  # 317 years, or a trace in Unix time: a double of that size tells 2 µs apart, a step takes thousands
)


def warn_cut_answers(table: "RequestTable", max_model_len: int) -> None:
    """Tell on stderr how many answers end at `max_model_len` before they are as long as asked, if any."""
    asked = table.output_tokens.astype(np.int64)
    room = max_model_len - table.prompt_tokens.astype(np.int64)
    cut = (asked > room) & (room > 0)  # prompts that do not fit at all are refused
    if cut.any():
        worst = int(np.argmax(np.where(cut, asked - room, 0)))
        print(
            f"headcount: warning: {int(cut.sum()):,} of {table.num_requests:,} answers end at max_model_len "
            f"{max_model_len:,}: that of request {worst:,} after {room[worst]:,} of its {asked[worst]:,} tokens",
            file=sys.stderr,
        )


def check_room(input_len: int, output_len: int, max_model_len: int) -> None:
    """Raise ValueError where a user's turn does not fit: it would be shortened."""
    if input_len + output_len > max_model_len:
        raise ValueError(
            f"--input-len {input_len:,} with --output-len {output_len:,} takes more than max_model_len "
            f"{max_model_len:,}; raise --max-model-len or shorten them"
        )


def check_clock(end_s: float) -> None:
    """Raise ValueError where a run took so long that its clock no longer tells steps apart."""
    if not end_s <= LONGEST_RUN_S:
        raise ValueError(
            f"the run takes {end_s:.3g} simulated seconds, beyond the {LONGEST_RUN_S:.0g} for which its clock tells "
            "steps apart; raise the rate, or shorten think times or steps"
        )
