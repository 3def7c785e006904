"""The longest context that is asked for is longer than the model's."""

from collections.abc import Iterator

from headcount.diagnostics import Facts, Severity

SEVERITY = Severity.WARNING


def find(facts: Facts) -> Iterator[tuple[str, str]]:
    model = facts.architecture
    if model is not None and facts.max_model_len is not None and facts.max_model_len > model.max_position_embeddings:
        yield (
            f"max_model_len {facts.max_model_len:,} is longer than the {model.max_position_embeddings:,} tokens that "
            f"{model.name} supports: a server refuses to start, unless --hf-overrides raises the limit",
            "",
        )
