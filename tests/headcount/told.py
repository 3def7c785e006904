"""What a mistake looks like, and commands to make one in."""

import re
from typing import Any

from headcount.queries.result import Result
from headcount.text.blocks import Block
from headcount.views.shown import summary, view_of
from headcount.views.summary.summary import Summary

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
MEMORY, SIMULATE = ("memory", *ON), ("simulate", *ON)
CAPACITY = ("capacity", *ON, "--gpus", "1", "--replications", "2")
LENGTHS = ("--input-len", "100", "--output-len", "10")
SERVE = (*SIMULATE, *LENGTHS, "--concurrency", "2")
OPEN = (*SIMULATE, *LENGTHS, "--num-requests", "5")

PROGRESS = re.compile(r": \d+ of \d+ after \d+ (s|min)")  # of a slow machine
NOT_PYTHON = (
    "Traceback",
    "Errno",
    "object at",
    "argument '",
    "pydantic",
    "valid float",
    "integer",
    "literal",
    "codec",
    "None",
)


def assert_told(ran: Any, part: str, code: int = 2) -> None:
    told = [line for line in ran.err.splitlines() if not PROGRESS.search(line)]
    assert (ran.code, len(told)) == (code, 1), ran.err
    assert told[0].startswith("headcount: ")
    assert told[0].count("headcount: ") == 1
    assert part in told[0]
    assert len(told[0]) < 1100
    assert not [word for word in NOT_PYTHON if word in told[0]], ran.err


def summary_of(result: Result) -> Summary:
    """What the person who decides reads first."""
    return summary(result.complete())


def head_of(result: Result) -> list[Block]:
    """What was asked, and the answer in a sentence."""
    return view_of(result).head(result)


def body_of(result: Result) -> list[Block]:
    """What stands below it."""
    return view_of(result).body(result)
