"""The context length that overrides of a model's configuration give, such as `--hf-overrides`."""

from collections.abc import Mapping

from files.documents import Json
from files.errors import HeadcountError
from files.names import shortened

_NESTED = ("text_config", "llm_config", "language_config")  # where multimodal models keep them
_ROPE = ("rope_scaling", "rope_parameters")
_LENGTH = ("max_position_embeddings", "model_max_length", "max_model_len")
MOST_FACTOR = 1024
_PASSED_OVER = ("rope_theta",)


def overridden_length(overrides: Json, option: str, flag: str) -> int | None:
    """Tokens, or None where the overrides leave that open. Raises HeadcountError for what changes more than it."""
    length = None
    for key, value in overrides.items():
        if key in _NESTED and isinstance(value, dict):
            length = overridden_length(value, option, flag) or length
        elif key in _ROPE and isinstance(value, dict):
            length = length or _scaled(value)
        elif key in _LENGTH and isinstance(value, int):
            length = value
        elif key not in _PASSED_OVER:
            raise HeadcountError(
                f"{option}: {flag}: '{shortened(str(key))}' changes the model; give --model a config.json that says "
                "so, or leave it out"
            )
    return length


def _scaled(rope: Mapping[str, object]) -> int | None:
    """By a factor over the length that the model was trained with."""
    factor, original = rope.get("factor"), rope.get("original_max_position_embeddings")
    if not isinstance(factor, int | float) or not isinstance(original, int):
        return None
    return int(factor * original) if 0 < factor <= MOST_FACTOR else None
