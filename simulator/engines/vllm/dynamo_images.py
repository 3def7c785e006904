"""Which release of vLLM an image of NVIDIA's Dynamo holds.

Source: docs.nvidia.com/dynamo/v1.6.1/reference/compatibility; ai-dynamo/dynamo's notes of release 1.6.2.
"""

from typing import Final

RUNTIME: Final = "nvcr.io/nvidia/ai-dynamo/vllm-runtime"
MODULE: Final = "dynamo.vllm"
VLLM_OF: Final = {
    "1.6.2": "0.31.0", "1.6.1": "0.31.0", "1.6.0": "0.31.0", "1.5.1": "0.28.0", "1.5.0": "0.28.0", "1.4.2": "0.26.0",
    "1.3.1": "0.23.0", "1.3.0": "0.23.0",
}  # fmt: skip
"""By tag, newest first."""
