"""How long the conversations of a population are."""

from workloads.population import Population

TURNS_DRAWN = 20_000  # one standard error of the chat preset's mean is then 0.9 %


def mean_context_tokens(population: Population, max_model_len: int, *, seed: int = 0) -> float:
    """Mean of prompt and answer together over a population's turns: what a turn holds as it ends.

    Drawn as the simulator draws them, so that conversations end where `max_model_len` cuts them. Raises
    `WorkloadError` where that has no room for the system prompt with a message.
    """
    table = population.draw(TURNS_DRAWN, 1, seed, max_model_len)
    return float((table.prompt_tokens + table.output_tokens).mean())
