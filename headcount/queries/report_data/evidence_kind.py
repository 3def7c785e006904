"""Whether a figure was measured, specified or assumed, as its source says."""

import re

MEASURED, SPECIFIED, ASSUMED = "measured", "specified", "assumed"
_ASSUMED = re.compile(r"assum|judgement|not measured|wider than measured|no start-up log|default stands", re.IGNORECASE)
_MEASURED = re.compile(
    r"\bfitted|measured|kernel tables|kernel times|start-up log|out-of-memory messages|request logs|\btrace|arXiv|"
    r"dataset|conversations|latency profile|recording",
    re.IGNORECASE,
)


def kind_of(source: str) -> str:
    """As its source says; what nobody measured and nobody guessed stands in a specification or was given."""
    if _ASSUMED.search(source):
        return ASSUMED
    return MEASURED if _MEASURED.search(source) else SPECIFIED
