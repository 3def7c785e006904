"""The longest context that is asked for is over twice as long as 99 % of requests: it makes none of them longer."""

from collections.abc import Iterator
from typing import Final

from headcount.diagnostics import Facts, Severity
from headcount.text.words import longest_name
from simulator.engines.engines import engine_of

SEVERITY = Severity.INFO
FAR: Final = 2  # times


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    longest, usual = facts.max_model_len, facts.usual_context
    if longest is None or usual is None or longest <= FAR * usual:
        return
    name = longest_name(engine_of(facts.plans[0].args)) if facts.plans else longest_name("vllm")
    yield (
        f"{name} {longest:,} only limits requests; it does not make them longer. 99 % of requests have at most "
        f"{usual:,} tokens of prompt and answer; for longer requests add --traffic context=x{longest // usual}",
        "",
    )
