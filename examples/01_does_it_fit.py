"""Does it fit, and how many conversations at once? Each weight and KV-cache format on one GPU."""

import headcount as hc

for quantization in (None, "fp8"):
    for kv_cache_dtype in ("auto", "fp8"):
        answer = hc.memory(
            "llama-3.1-70b", "h200", max_model_len=8192, quantization=quantization, kv_cache_dtype=kv_cache_dtype
        )
        fits = f"{answer.conversations_at_once:,} conversations" if answer.fits else "does not fit"
        print(f"weights {quantization or 'bf16'}, KV cache {kv_cache_dtype}: {fits}")
