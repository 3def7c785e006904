"""Guide 001: sizing of a 7B's training, then of Qwen2.5-7B's inference."""

from dataclasses import replace

from calibrate.worked_examples.causes import (
    BYTES_TWICE,
    CONFIG,
    DECIMAL,
    HALF,
    INCOMPLETE,
    INHERITED,
    NO_FIT,
    WORDS,
)
from calibrate.worked_examples.example import Example, fig, row
from calibrate.worked_examples.shapes import (
    GB,
    GIB,
    LLAMA,
    SEVEN,
    kv_gb,
    per,
    per_hidden,
    state_reduction,
    states,
    stored_gb,
    weights_gb,
)
from kvcache.models.catalog import load_model
from kvcache.models.parameters import total_parameters

_QWEN = "qwen2.5-7b"
_TOKENS = 16 * 32_768  # of the guide's serving example
_BUFFERS_GB = 2  # given by the guide


def _full(what: str) -> float:
    found: int = getattr(states(7 * GB), f"{what}_bytes")
    return found / GB


def _written(tokens: int) -> float:
    """The cache of the config that the guide writes down: 32 layers with 8 KV heads of 128."""
    return kv_gb(replace(LLAMA["7B"], num_key_value_heads=8), tokens)


def _plan(tp: int, *, written: bool) -> float:
    """GB per GPU of weights, cache, buffers, with 16 sequences per GPU."""
    cache = _written(_TOKENS) if written else kv_gb(_QWEN, tp * _TOKENS, tp=tp)
    return weights_gb(7.6 / tp) + cache + _BUFFERS_GB


def _weights_table() -> tuple[Example, ...]:
    found, name = [], 92
    for billions in (7, 13, 70):
        for quantization, label in (("fp32", "fp32"), ("fp16", "fp16"), ("int8", "INT8"), ("awq", "4 bits")):
            packed = quantization == "awq"
            found.append(row(
                f"E{name:03}", "weights", f"{billions}B in {label}",
                fig("GB", lambda b=billions, q=quantization: weights_gb(b, q)),  # type: ignore[misc]
                differs=packed, why="ours has the scales of AWQ's groups, the file's figure has not" if packed else "",
            ))  # fmt: skip
            name += 1
    return tuple(found)


ROWS = (
    *_weights_table(),
    row("E104", "training states", "AdamW, mixed", fig("bytes per parameter", lambda: per("optimizer"))),
    row("E105", "training states", "AdamW, fp32", fig("bytes per parameter", lambda: per("optimizer", "fp32"))),
    row("E106", "training states", "7B, AdamW", fig("GB", lambda: _full("optimizer"))),
    row("E107", "training states", "7B in training, on one GPU of 80 GB", fig("GB", lambda: _full("total")),
        cause=NO_FIT, why="states alone exceed it"),
    row("E108", "activations", "rough formula",
        fig("bytes per token, layer, hidden element", lambda: per_hidden(SEVEN), 0, 1),
        cause=INCOMPLETE, why="the layer's input alone"),
    row("E109", "activations", "full formula", verdict="wrong", cause=BYTES_TWICE,
        why="a formula: no factor of bytes on top, which E116 counts"),
    row("E110", "activations", "one layer recomputed at a time",
        fig("bytes kept per layer", lambda: per_hidden(SEVEN, "input"), 0, None),
        fig("bytes in the live layer", lambda: per_hidden(SEVEN), 1, None),
        verdict="wrong", cause=INCOMPLETE, why="leaves out the inputs that every layer keeps"),
    row("E111", "activations", "cost of recomputing", fig("% of a step", None), verdict="wrong", cause=WORDS,
        why="time, not memory; a forward pass is a third of a step"),
    row("E112", "KV cache", "formula", verdict="right",
        why="a formula, which E140 counts; a head's width must be read, not divided"),
    row("E113", "weights", "7B in fp16", fig("GB", lambda: _full("weights"))),
    row("E114", "training states", "7B, AdamW", fig("GB", lambda: _full("optimizer"))),
    row("E115", "training states", "7B, gradients", fig("GB", lambda: _full("gradients"))),
    row("E116", "activations", "7B, 32 × 4,096 tokens",
        fig("GB with flash attention", lambda: stored_gb(SEVEN, "linear", 32, 4096), 3),
        fig("GB with scores", lambda: stored_gb(SEVEN, "total", 32, 4096), 1, None),
        cause=DECIMAL, why="below even its rough formula"),
    row("E117", "training states", "7B, all", fig("GB", None), verdict="wrong", cause=INHERITED,
        why="a given figure: 2 GB of buffers, beside E116's activations"),
    row("E118", "training states", "saved by ZeRO",
        fig("times, stage 1", lambda: state_reduction(1)), fig("times, stage 2", lambda: state_reduction(2), 1, 1)),
    row("E119", "weights", "what TP divides", verdict="near",
        why="a formula: norms are whole, KV heads repeat beyond their number"),
    row("E120", "activations", "what TP divides",
        fig("bytes that stay", lambda: 2 * per_hidden(SEVEN, tp=2) - per_hidden(SEVEN), 2, None),
        verdict="wrong", cause=INCOMPLETE, why="inputs of norms with dropout masks stay whole"),
    row("E121", "clusters", "all-reduces of TP", verdict="right", why="communication, not memory"),
    row("E122", "weights", "experts per GPU", verdict="right", why="a formula, in our laws on expert parallelism"),
    row("E123", "weights", "experts with the rest", verdict="right", why="as E122"),
    row("E124", "clusters", "GPUs of a layout with experts", verdict="wrong", cause=WORDS,
        why="a formula: experts use the ranks of the others; E056 counts ours"),
    row("E125", "training states", "memory per GPU", verdict="wrong", cause=INCOMPLETE,
        why="a formula: gradients are not in it, nor a cache"),
    row("E126", "weights", "Qwen2.5-7B", fig("B parameters", lambda: total_parameters(load_model(_QWEN)) / GB)),
    row("E127", "configs", "Qwen2.5-7B", fig("layers", lambda: load_model(_QWEN).num_hidden_layers),
        verdict="wrong", cause=CONFIG, why="LLaMA-7B's"),
    row("E128", "configs", "Qwen2.5-7B", fig("hidden elements", lambda: load_model(_QWEN).hidden_size),
        verdict="wrong", cause=CONFIG, why="LLaMA-7B's"),
    row("E129", "configs", "Qwen2.5-7B", fig("MLP elements", lambda: load_model(_QWEN).intermediate_size),
        cause=CONFIG, why="LLaMA-7B's"),
    row("E130", "configs", "Qwen2.5-7B",
        fig("heads", lambda: load_model(_QWEN).num_attention_heads),
        fig("KV heads", lambda: load_model(_QWEN).num_key_value_heads, 1, 1),
        fig("elements a head", lambda: load_model(_QWEN).head_dim, 2, None),
        cause=CONFIG, why="no Qwen2.5 of 7B has them"),
    row("E131", "configs", "Qwen2.5-7B", fig("words", lambda: load_model(_QWEN).vocab_size), verdict="near",
        why="rounded"),
    row("E132", "weights", "7.6B in bf16", fig("GB", lambda: weights_gb(7.6))),
    row("E133", "KV cache", "16 × 32,768 tokens",
        fig("GB by its config", lambda: _written(_TOKENS)),
        fig("GiB", lambda: _written(_TOKENS) * GB / GIB, 1, None),
        fig("GB by Qwen's", lambda: kv_gb(_QWEN, _TOKENS), 2, None),
        fig("GiB", lambda: kv_gb(_QWEN, _TOKENS) * GB / GIB, 3, None),
        cause=HALF, why="half of its own product, by luck near to Qwen's cache"),
    row("E134", "serving", "weights, cache, buffers",
        fig("GB by its config", lambda: _plan(1, written=True)),
        fig("GB by Qwen's", lambda: _plan(1, written=False), 1, None),
        cause=HALF, why="fits an H100 after all, since its two mistakes cancel"),
    row("E135", "serving", "the same at TP 1",
        fig("GB by its config", lambda: _plan(1, written=True)),
        fig("GB by Qwen's", lambda: _plan(1, written=False), 1, None), cause=HALF, why="as E134"),
    row("E136", "serving", "the same at TP 2, twice the users",
        fig("GB by its config", lambda: _plan(2, written=True), 4, 1),
        fig("GB by Qwen's", lambda: _plan(2, written=False), 5, None), cause=HALF, why="as E134"),
    row("E137", "serving", "the same at TP 4, four times the users",
        fig("GB by its config", lambda: _plan(4, written=True), 4, 1),
        fig("GB by Qwen's", lambda: _plan(4, written=False), 5, None), cause=HALF, why="as E134"),
    row("E138", "weights", "1B in fp16", fig("GB", lambda: weights_gb(1))),
    row("E139", "training states", "1B, mixed precision", fig("GB", lambda: per("total")),
        why="the rest is activations, whose share no rule gives"),
    row("E140", "KV cache", "LLaMA-7B, 4,096 tokens",
        fig("GiB", lambda: kv_gb(LLAMA["7B"], 4096) * GB / GIB, 1),
        fig("GB", lambda: kv_gb(LLAMA["7B"], 4096), 0, None), why="GiB called GB"),
    row("E141", "KV cache", "LLaMA-7B, 131,072 tokens",
        fig("GiB", lambda: kv_gb(LLAMA["7B"], 131_072) * GB / GIB, 1),
        fig("GB", lambda: kv_gb(LLAMA["7B"], 131_072), 0, None), why="GiB called GB"),
    row("E142", "clusters", "traffic of TP 2 to 4", verdict="wrong", cause=WORDS, why="communication, not memory"),
    row("E143", "serving", "how exact it is", verdict="wrong", cause=WORDS,
        why="a wording: its own examples err twofold and tenfold"),
)  # fmt: skip
