"""From a config to what its layers with a state look like."""

from typing import Any

from files.documents import Json
from kvcache.models.config.families import state_keys
from kvcache.models.config.fields import Fields, Word
from kvcache.shape.layer import StateSpace

_FLAGS = ("conv_bias", "projection_bias", "output_bias", "norm", "full_rank_gate", "full_rank_decay")
_EXPANSIONS = ("mamba_expand", "expand")  # widths in hidden sizes


def read_state(fields: Fields) -> StateSpace:
    """The shape of a model's states. Raises `ValueError` where its numbers are missing or contradict each other."""
    keys = {
        name: key if isinstance(key, list) else [key] for name, key in state_keys(fields.family.state or "").items()
    }
    read: Json = {"kind": keys.pop("kind")[0]}
    width = _width(fields, keys.pop("width")) if "width" in keys else None
    heads = keys.pop("head_dim") if width is not None else []
    for name, spellings in keys.items():
        read[name] = _value(fields, name, spellings)
    if width is not None:
        read["head_dim"] = _head_dim(fields, heads, width, read["num_heads"])
    if read["kind"] == "kimi_delta":
        read["state_dtype"] = "float32"  # vLLM 0.32 MambaStateDtypeCalculator.kda_state_dtype for "auto"
    return StateSpace(**read)


def _value(fields: Fields, name: str, spellings: list[Any]) -> Any:
    if spellings == [True]:
        return True
    if name in _FLAGS:
        return fields.flag(*spellings, default=any(fields.family.defaults.get(key) is True for key in spellings))
    if name == "state_dtype":
        return fields.value(Word, *spellings) or str(fields.family.defaults.get(spellings[0], "auto"))
    if name == "intermediate_size":
        return _width(fields, spellings)
    if name == "dt_rank" and fields.raw(*spellings) in (None, "auto"):
        return -(-fields.hidden_size // 16)
    return fields.integer(*spellings)


def _width(fields: Fields, spellings: list[str]) -> int:
    """The first that is there."""
    given = next((key for key in spellings if fields.raw(key)), spellings[-1])
    return fields.times_hidden(given) if given in _EXPANSIONS else fields.integer(given)


def _head_dim(fields: Fields, spellings: list[str], width: int, heads: int) -> int:
    given = fields.raw(*spellings)
    head_dim = width // max(1, heads) if given in (None, "auto") else fields.integer(*spellings)
    if heads * head_dim != width:
        raise fields.error(f"{heads} state-space heads of {head_dim} do not make up the width {width}")
    return head_dim
