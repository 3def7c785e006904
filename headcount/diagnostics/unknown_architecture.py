"""The model's shape rests on an assumption."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.ASSUMPTION
REMEDY = "choose a model whose model_type is known, or give the config.json of the checkpoint itself"


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    for name, value, why in () if facts.architecture is None else facts.architecture.assumptions:
        yield f"assumed: {name}, {value}", why
