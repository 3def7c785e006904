"""Models that see, one of each family whose image tokens are known."""

IMAGE_MODELS = (
    "qwen3-vl-8b",
    "qwen2.5-vl-7b",
    "gemma-3-27b",
    "OpenGVLab/InternVL3_5-8B",
    "llama-4-scout",
    "mistral-small-3.1",
    "kimi-vl-a3b",
    "zai-org/GLM-4.5V",
    "llava-1.5-7b",
    "qwen3.5-9b",
)
