"""What a model's unpacked weights are served in."""

from dataclasses import replace

from kvcache.models.architecture import Architecture

# vLLM's names for --dtype (config/model.py, ModelDType); auto: the checkpoint's, 16 bits for one in fp32.
DTYPES = {
    "auto": None,
    "half": "float16",
    "float16": "float16",
    "bfloat16": "bfloat16",
    "float": "float32",
    "float32": "float32",
}


def with_dtype(architecture: Architecture, dtype: str) -> Architecture:
    """The model served in that dtype. Raises `ValueError` on one that is not known."""
    if dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype[:40]!r}; allowed: {', '.join(DTYPES)}")
    asked = DTYPES[dtype]
    return architecture if asked in (None, architecture.dtype) else replace(architecture, dtype=asked)
