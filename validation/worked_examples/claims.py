"""Each worked example that Headcount has a figure for: which of its numbers, and how we compute it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from conformance.models import with_attention
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import total_parameters
from kvcache.training.plan import TrainingPlan
from validation.worked_examples.quantities import (
    BIG,
    GB,
    GPT3,
    LLAMA,
    SEVEN,
    activations_gib,
    adapters_gb,
    block_bytes,
    gpus_of_80_gb,
    kv_gb,
    kv_gib,
    least_h100,
    per,
    per_hidden,
    score_bytes,
    server_gb,
    state_reduction,
    states_gb,
    states_gib,
    stored_gb,
    weights_gb,
)

L70, QWEN = "llama-2-70b", "qwen2.5-7b"
# Why a claim is wrong
HALF = "half of the guide's own formula"
FORMAT = "bytes of another number format"
CONFIG = "not what the model's config.json says"
DECIMAL = "a power of ten lost"
NO_FIT = "said to fit, does not"
TERM = "a term left out"
TWICE = "bytes counted twice"
UNIT = "a unit taken for another"
SELF = "contradicts its own source or text"


@dataclass(frozen=True)
class Claim:
    """A row of the file; `claimed` and `recomputed`: which number of those cells ours answers (None: it has none)."""

    row: str
    about: str
    unit: str
    ours: Callable[[], float]
    claimed: int = 0
    recomputed: int | None = 0
    cause: str = ""  # of a claim that is wrong
    remark: str = ""  # where ours is another number than the file's, or the claim is off by less


def _weights() -> Iterator[Claim]:
    sizes, formats = (7.0, 13.0, 70.0), ("fp32", "fp16", "int8", "awq")
    scales = "AWQ's scales and zero points come on top"
    for number, (size, name) in enumerate([(size, name) for size in sizes for name in formats], start=92):
        off = name == "awq"
        yield Claim(
            f"E{number:03}", f"weights of {size:g}B in {name}", "GB", partial(weights_gb, size, name),
            recomputed=None if off else 0, remark=scales if off else "",
        )  # fmt: skip
    for row, size, name, claimed in (("E044", 70.0, "bf16", 0), ("E132", 7.6, "bf16", 0), ("E138", 1, "fp16", 0),
                                     ("E230", 7, "fp32", 0), ("E230", 7, "fp16", 1)):  # fmt: skip
        yield Claim(row, f"weights of {size:g}B in {name}", "GB", partial(weights_gb, size, name), claimed, claimed)
    yield Claim("E057", "weights of 70B in 4 bits", "GB", lambda: weights_gb(70, "awq"), 0, None, remark=scales)
    for row, model, billions in (("E006", "GPT-2", 1.5), ("E007", "GPT-3", 175), ("E008", "GPT-3 (again)", 175)):
        yield Claim(row, f"weights of {model} in fp32", "GB", partial(weights_gb, billions, "fp32"), 0, 1, FORMAT)


def _states() -> Iterator[Claim]:
    """Weights, gradients and optimizer in training."""
    for row, size, what in (
        ("E035", 70, "weights"), ("E036", 70, "gradients"), ("E037", 70, "optimizer"), ("E062", 70, "total"),
        ("E113", 7, "weights"), ("E106", 7, "optimizer"), ("E114", 7, "optimizer"), ("E115", 7, "gradients"),
        ("E233", 7, "optimizer"), ("E257", 7, "total"),
    ):  # fmt: skip
        yield Claim(row, f"{what} of {size}B, mixed precision", "GB", partial(states_gb, size, what))
    for row, what, precision, optimizer in (
        ("E104", "optimizer", "bf16-mixed", "adamw"), ("E105", "optimizer", "fp32", "adamw"),
        ("E144", "weights", "fp32", "adamw"), ("E157", "optimizer", "fp32", "adamw"),
        ("E169", "optimizer", "bf16-mixed", "adamw"), ("E171", "optimizer", "bf16-mixed", "sgd-momentum"),
        ("E231", "gradients", "bf16-mixed", "adamw"), ("E234", "total", "bf16-mixed", "adamw"),
    ):  # fmt: skip
        yield Claim(row, f"{what}, {precision}, {optimizer}", "bytes per parameter",
                    partial(per, what, precision, optimizer))  # fmt: skip
    yield Claim("E170", "8-bit AdamW", "bytes per parameter", lambda: per("optimizer", "bf16-mixed", "adamw-8bit"))
    yield Claim("E159", "8-bit Adam", "bytes per parameter", lambda: per("optimizer", "fp32", "adamw-8bit"), cause=TERM)
    yield Claim("E163", "weights in single precision", "bytes per parameter", lambda: per("weights", "fp32"), 0, 1,
                FORMAT)  # fmt: skip
    yield Claim("E232", "Adam in fp32", "bytes per parameter", lambda: per("optimizer", "fp32"), 0, 1, FORMAT)
    yield Claim("E021", "a column sum: states in fp32", "bytes per parameter", lambda: per("optimizer"), cause=SELF)
    yield Claim("E011", "states in training", "bytes per parameter", lambda: per("total"), 1)
    yield Claim("E022", "GPUs of 80 GB for 70B's states", "GPUs", lambda: 70 * per("total") / 80)
    yield Claim("E139", "states of 1B, mixed precision", "GB", lambda: per("total"), remark="18 holds activations")
    yield Claim("E003", "Adam of 175B without master weights", "TB", lambda: 175 * per("optimizer", "fp32") / 1e3, 0, 1)
    yield Claim("E004", "gradients of 175B in fp32", "GB", lambda: 175 * per("gradients", "fp32"), 0, 1)
    for row, claimed, stage in (("E071", 0, 1), ("E072", 0, 2), ("E118", 0, 1), ("E118", 1, 2)):
        yield Claim(row, f"saved by ZeRO stage {stage}", "times", partial(state_reduction, stage), claimed, claimed)
    yield Claim("E107", "7B in training, said to fit 80 GB", "GB", lambda: 7 * per("total"), 0, 0, NO_FIT)
    yield Claim("E264", "7B in training, said to fit 80 GB", "GB", lambda: 7 * per("total"), 0, 0, NO_FIT)
    yield Claim("E265", "70B in training, said to fit 640 GB", "GB", lambda: 70 * per("total"), 0, 0, NO_FIT)
    yield Claim("E068", "GPT-3 in training", "GB", lambda: 175 * per("total") + stored_gb(GPT3, "input"), cause=TWICE)
    yield Claim("E068", "GPT-3 in training", "TB", lambda: (175 * per("total") + stored_gb(GPT3, "input")) / 1e3, 1, 1,
                UNIT)  # fmt: skip
    rounded = "the guide rounds 16.8 M parameters to 20 M"
    yield Claim("E258", "LoRA of rank 16 on 7B's attention", "M parameters", lambda: adapters_gb("count"),
                remark=rounded)  # fmt: skip
    yield Claim("E259", "its gradients", "GB", lambda: adapters_gb("gradients"), 0, 1, remark=rounded)
    yield Claim("E260", "its Adam", "GB", lambda: adapters_gb("optimizer"), 0, 1, remark=rounded)


def _activations() -> Iterator[Claim]:
    for row, cause in (("E027", TWICE), ("E074", "")):
        yield Claim(row, "activations saved by recomputing", "times",
                    lambda: stored_gb(BIG, "linear") / stored_gb(BIG, "input"), cause=cause)  # fmt: skip
    yield Claim("E075", "4,096 tokens against 512", "times",
                lambda: stored_gb(BIG, "linear", 1, 4096) / stored_gb(BIG, "linear", 1, 512))  # fmt: skip
    yield Claim(
        "E039",
        "activations of 70B, 8 × 4,096 tokens, recomputed",
        "GB",
        lambda: stored_gb(BIG, "input", 8, 4096),
        0,
        1,
        SELF,
    )
    yield Claim("E040", "70B in training, with E039", "GB",
                lambda: 70 * per("total") + stored_gb(BIG, "input", 8, 4096), 0, 2, SELF)  # fmt: skip
    yield Claim("E067", "activations of GPT-3, recomputed", "GB", lambda: stored_gb(GPT3, "input"), cause=TWICE)
    yield Claim(
        "E108",
        "rough formula of activations, per token, layer, hidden element",
        "bytes",
        lambda: per_hidden(SEVEN),
        1,
        0,
        TERM,
    )
    yield Claim("E116", "activations of 7B, 32 × 4,096 tokens, flash attention", "GB",
                lambda: stored_gb(SEVEN, "linear", 32, 4096), 0, 3, DECIMAL)  # fmt: skip
    twice = "the guide counts the softmax's output twice"
    yield Claim(
        "E164",
        "attention scores kept, per head and pair of tokens",
        "bytes",
        lambda: score_bytes(SEVEN),
        1,
        None,
        remark=twice,
    )
    yield Claim("E229", "saved by flash attention, per head and pair", "bytes", lambda: score_bytes(SEVEN), 0, None)
    for row, size in (("E176", "7B"), ("E181", "13B"), ("E186", "33B"), ("E191", "65B")):
        yield Claim(row, f"activations of LLaMA-{size}, 64 × 2,048 tokens", "GiB",
                    partial(activations_gib, LLAMA[size]), 0, None, remark=twice)  # fmt: skip


def _kv_cache() -> Iterator[Claim]:
    for row, tokens, kv_heads in (
        ("E033", 131_072, 8), ("E045", 409_600, 8), ("E088", 4_096_000, 64), ("E089", 4_096_000, 8),
        ("E090", 4_096_000, 1),
    ):  # fmt: skip
        yield Claim(row, f"KV cache of Llama-2-70B, {tokens:,} tokens, {kv_heads} KV heads", "GB",
                    partial(kv_gb, L70, tokens, kv_heads=kv_heads))  # fmt: skip
    yield Claim("E058", "KV cache of Llama-2-70B, 100 × 4,096 tokens beside 4-bit weights", "GB",
                lambda: kv_gb(L70, 409_600), cause=DECIMAL)  # fmt: skip
    yield Claim("E063", "all heads against 8 groups", "times", lambda: kv_gb(L70, 1, kv_heads=64) / kv_gb(L70, 1))
    yield Claim("E087", "GPUs of 80 GB for 1,000 × 4,096 tokens, 64 KV heads", "GPUs",
                lambda: gpus_of_80_gb(kv_gb(L70, 4_096_000, kv_heads=64)))  # fmt: skip
    yield Claim("E031", "a PagedAttention page at TP 8", "KiB", lambda: block_bytes(L70, 8) / 2**10, 0, 3, UNIT)
    yield Claim("E032", "a PagedAttention page", "bytes", lambda: block_bytes(L70), 0, 0, UNIT)
    written, tokens = with_attention(LLAMA["7B"], num_kv_heads=8), 16 * 32_768
    yield Claim(
        "E133", "KV cache of 16 × 32,768 tokens, the guide's config", "GB", lambda: kv_gb(written, tokens), 0, 0, HALF
    )
    for row, tp, about in (("E134", 1, ""), ("E135", 1, ""), ("E136", 2, ", TP 2"), ("E137", 4, ", TP 4")):
        yield Claim(row, f"weights, that cache, 2 GB of buffers{about}", "GB per GPU",
                    partial(server_gb, written, tokens, tp), 1 if tp > 1 else 0, 4 if tp > 1 else 0, HALF)  # fmt: skip
    for row, length in (("E140", 4096), ("E141", 131_072)):
        yield Claim(row, f"KV cache of LLaMA-7B, {length:,} tokens", "GiB", partial(kv_gib, LLAMA["7B"], length), 0, 1)
    lengths = (1024, 4096, 16_384, 32_768, 131_072)
    for number, (size, length) in enumerate([(size, length) for size in LLAMA for length in lengths], start=200):
        yield Claim(f"E{number}", f"KV cache of LLaMA-{size}, {length:,} tokens", "GiB",
                    partial(kv_gib, LLAMA[size], length), cause=HALF)  # fmt: skip


def _serving() -> Iterator[Claim]:
    h100 = "an H100 reports 85.0 decimal GB, not 80"
    yield Claim("E001", "memory of 128 H100", "TB", lambda: 128 * find_gpu("h100-sxm").memory_bytes / 1e12, 1, None,
                remark=h100)  # fmt: skip
    yield Claim("E009", "H100 that Llama-2-70B needs", "GPUs", lambda: least_h100(L70), cause=SELF)
    yield Claim("E049", "H100 for 100 requests of 4,096 tokens", "GPUs", lambda: least_h100(L70, 100))
    yield Claim("E050", "H100 for 10 of them", "GPUs", lambda: least_h100(L70, 10), 0, None, NO_FIT)
    yield Claim("E061", "4-bit weights with 100 requests of 4,096 tokens", "GB",
                lambda: weights_gb(70, "awq") + kv_gb(L70, 409_600), 0, None, DECIMAL)  # fmt: skip
    mixed = 800 * 2048 + 200 * 6144
    yield Claim("E083", "weights of 70B with 1,000 mixed contexts", "GB", lambda: weights_gb(70) + kv_gb(L70, mixed))
    yield Claim(
        "E083", "GPUs of 80 GB for them", "GPUs", lambda: gpus_of_80_gb(weights_gb(70) + kv_gb(L70, mixed)), 1, 2
    )
    yield Claim("E084", "left for cache on 16 GPUs at TP 4", "GB", lambda: 16 * 80 - 4 * weights_gb(70), 0, 3, NO_FIT)
    yield Claim("E085", "users of 8,192 tokens in that room", "users",
                lambda: int((16 * 80 - 4 * weights_gb(70)) / kv_gb(L70, 8192)), 0, 3, NO_FIT)  # fmt: skip


def _counts() -> Iterator[Claim]:
    """Parameters, config figures, ranks."""
    for row, size in (("E177", "7B"), ("E182", "13B"), ("E187", "33B"), ("E192", "65B")):
        yield Claim(row, f"parameters of LLaMA-{size}", "parameters", partial(total_parameters, LLAMA[size]))
    for first, size in ((173, "7B"), (178, "13B"), (183, "33B"), (188, "65B")):
        for offset, what in enumerate(("weights", "gradients", "optimizer")):
            yield Claim(f"E{first + offset}", f"{what} of LLaMA-{size}", "GiB",
                        partial(states_gib, LLAMA[size], what))  # fmt: skip
    yield Claim("E126", "parameters of Qwen2.5-7B", "B", lambda: total_parameters(load_model(QWEN)) / GB)
    for row, name, place in (
        ("E127", "num_hidden_layers", 0), ("E128", "hidden_size", 0), ("E129", "intermediate_size", 0),
        ("E130", "num_attention_heads", 0), ("E130", "num_key_value_heads", 1), ("E131", "vocab_size", 0),
    ):  # fmt: skip
        yield Claim(row, f"{name} of Qwen2.5-7B", "", partial(getattr, load_model(QWEN), name), place, place,
                    "" if name == "vocab_size" else CONFIG)  # fmt: skip
    yield Claim("E056", "GPUs of TP 8 × PP 2 × DP 16", "GPUs",
                lambda: TrainingPlan(tensor_parallel_size=8, pipeline_parallel_size=2, data_parallel_size=16).num_gpus,
                1, 3, SELF)  # fmt: skip
    yield Claim("E249", "layers of a stage, 24 over 4", "layers",
                lambda: len(Parallelism(pipeline_parallel_size=4).stage_layers(24, 0)))  # fmt: skip
    for row, batch, steps in (("E250", 8, 4), ("E263", 4, 8)):
        plan = TrainingPlan(micro_batch_size=batch, gradient_accumulation=steps)
        yield Claim(row, f"global batch of {batch} × {steps}", "sequences", partial(getattr, plan, "global_batch_size"))


def claims() -> list[Claim]:
    """Every claim that Headcount has a figure for, in the file's order."""
    parts = (_weights, _states, _activations, _kv_cache, _serving, _counts)
    return sorted((claim for part in parts for claim in part()), key=lambda claim: (claim.row, claim.claimed))
