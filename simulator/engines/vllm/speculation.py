"""Which draft tokens are accepted: a function of the request and the position, so that every twin agrees."""

METHOD_NAMES = {"eagle": "eagle", "eagle3": "eagle", "mtp": "eagle", "draft_model": "draft_model", "ngram": "ngram"}
"""vLLM's `speculative_config` methods, with the one here that decides alike; MTP is taken to have one module."""

ACCEPTED_KEYS = frozenset(
    {"method", "num_speculative_tokens", "acceptance_rate", "model", "prompt_lookup_max", "prompt_lookup_min"}
)
"""Of `speculative_config`; what drafts are made of decides nothing but times and how many are accepted."""

_MASK = 0xFFFFFFFF


def accepted_drafts(request: int, num_output_tokens: int, num_drafts: int, acceptance_rate: float) -> int:
    """How many of a step's drafts are accepted, the first of which guesses output token `num_output_tokens`.

    Each is accepted with `acceptance_rate`, independently, up to the first that is not.
    """
    limit = acceptance_limit(acceptance_rate)
    for draft in range(num_drafts):
        if draft_hash(request, num_output_tokens + draft) >= limit:
            return draft
    return num_drafts


def acceptance_limit(acceptance_rate: float) -> int:
    """A draft is accepted if its hash lies below this."""
    return round(acceptance_rate * 2**32)


def draft_hash(request: int, position: int) -> int:
    """An even spread over [0, 2**32); every product stays below 2**63, so that compiled code computes the same."""
    mixed = (request * 0x1E3779B1 + position * 0x25EBCA6B + 0x3C6EF372) & _MASK
    mixed ^= mixed >> 16
    mixed = (mixed * 0x7FEB352D) & _MASK
    mixed ^= mixed >> 15
    mixed = (mixed * 0x2C1B3C6D) & _MASK
    return mixed ^ (mixed >> 16)
