"""What a mistake looks like, and commands to make one in."""

from typing import Any

ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
MEMORY, SIMULATE = ("memory", *ON), ("simulate", *ON)
CAPACITY = ("capacity", *ON, "--gpus", "1", "--replications", "2")
LENGTHS = ("--input-len", "100", "--output-len", "10")
SERVE = (*SIMULATE, *LENGTHS, "--concurrency", "2")
OPEN = (*SIMULATE, *LENGTHS, "--num-requests", "5")

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
    assert (ran.code, ran.err.count("\n")) == (code, 1), ran.err
    assert ran.err.startswith("headcount: ")
    assert ran.err.count("headcount: ") == 1
    assert part in ran.err
    assert len(ran.err) < 1100
    assert not [word for word in NOT_PYTHON if word in ran.err], ran.err
