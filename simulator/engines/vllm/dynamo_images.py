"""Which release of vLLM an image of NVIDIA's Dynamo holds; dynamo_images.toml has the source."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Final

RUNTIME: Final = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
MODULE: Final = "dynamo.vllm"
_FACTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
VLLM_OF: Final[Mapping[str, str]] = _FACTS["vllm_of"]
"""By tag, newest first."""
