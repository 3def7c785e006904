"""Guide 003: LLaMA's training and inference in formulas."""

from calibrate.worked_examples.causes import HALF, INCOMPLETE, MISNAMED, WORDS
from calibrate.worked_examples.example import Example, fig, row
from calibrate.worked_examples.shapes import (
    GB,
    GIB,
    LLAMA,
    SEVEN,
    budget,
    kv_gb,
    layer,
    llama,
    per,
    per_hidden,
)
from kvcache.models.parameters import total_parameters

_SOFTMAX = "counts the softmax's output twice"


def _activations_gib(name: str) -> float:
    plan = {"micro_batch_size": 64, "sequence_length": 2048, "flash_attention": False}
    return budget(LLAMA[name], **plan).activations_bytes / GIB


def _share(name: str) -> float:
    activations = _activations_gib(name) * GIB
    return 100 * activations / (activations + total_parameters(LLAMA[name]) * per("total"))


def _scores() -> float:
    """Bytes of scores that one layer keeps per head and pair of tokens."""
    one = layer(SEVEN, dropout=False)
    return one.attention_core / (SEVEN.num_attention_heads * 2048)


def _gated_mlp() -> float:
    """Bytes per token and hidden element of a gated MLP of 8/3 the hidden size, its input included."""
    wide, narrow = (per_hidden(llama(1, 4096, 32, width), dropout=False) for width in (4096 * 8 // 3, 1))
    return 2 + wide - narrow


def _training(first: int, name: str) -> tuple[Example, ...]:
    arch, label = LLAMA[name], f"LLaMA-{name}"
    called = "GiB called GB"
    states = (("weights", "weights"), ("gradients", "gradients"), ("AdamW", "optimizer"))
    found = [
        row(
            f"E{first + offset}", "training states", f"{label}, {about}",
            fig("GiB", lambda what=what: total_parameters(arch) * per(what) / GIB), why=called,  # type: ignore[misc]
        )
        for offset, (about, what) in enumerate(states)
    ]  # fmt: skip
    found.append(row(
        f"E{first + 3}", "activations", f"{label}, 64 × 2,048 tokens", fig("GiB", lambda: _activations_gib(name)),
        differs=True, verdict="near", otherwise="right",
        why=f"{_SOFTMAX}, rounds the MLP's width, has 16-bit logits; a test takes it apart",
    ))  # fmt: skip
    found.append(row(
        f"E{first + 4}", "parameters", label, fig("parameters", lambda: total_parameters(arch)),
        verdict="near", why="without the last norm",
    ))  # fmt: skip
    return tuple(found)


def _kv_table() -> tuple[Example, ...]:
    found, name = [], 200
    for size, arch in LLAMA.items():
        for tokens in (1024, 4096, 16_384, 32_768, 131_072):
            found.append(row(
                f"E{name}", "KV cache", f"LLaMA-{size}, {tokens:,} tokens",
                fig("GiB", lambda a=arch, t=tokens: kv_gb(a, t) * GB / GIB),  # type: ignore[misc]
                cause=HALF, why="its formula has 4, its table 2; GiB called GB",
            ))  # fmt: skip
            name += 1
    return tuple(found)


ROWS = (
    row("E163", "formats", "single precision",
        fig("bytes per parameter", lambda: per("weights", "fp32"), 1),
        fig("bytes in half", lambda: per("weights"), 0, None), cause=MISNAMED, why="half precision"),
    row("E164", "activations", "scores, per head and pair of tokens", fig("bytes", _scores, 1, 1),
        differs=True, verdict="near", otherwise="right",
        why=f"{_SOFTMAX}, as its own list does; plain transformers keeps 6 (`--no-fused-kernels`)"),
    row("E165", "activations", "gated MLP",
        fig("bytes per token and hidden element", _gated_mlp, 1),
        verdict="wrong", cause=INCOMPLETE,
        why="right in the end; its terms make 12.7, without one of the two wide inputs"),
    row("E166", "activations", "a layer without scores",
        fig("bytes per token and hidden element",
            lambda: per_hidden(llama(1, 4096, 32, 4096 * 8 // 3), dropout=False)),
        why=f"with the scores it {_SOFTMAX}"),
    row("E167", "activations", "the output", verdict="near", why="a formula: 16-bit logits; ours are fp32"),
    row("E168", "activations", "formula", verdict="right", why="a formula: as E164, E167"),
    row("E169", "training states", "AdamW", fig("bytes per parameter", lambda: per("optimizer"))),
    row("E170", "training states", "8-bit AdamW",
        fig("bytes per parameter", lambda: per("optimizer", "bf16-mixed", "adamw-8bit")),
        why="scales of blocks come on top"),
    row("E171", "training states", "SGD with momentum",
        fig("bytes per parameter", lambda: per("optimizer", "bf16-mixed", "sgd-momentum"))),
    row("E172", "training states", "formula of all", verdict="right", why="a formula: as E164, E167"),
    *_training(173, "7B"),
    *_training(178, "13B"),
    *_training(183, "33B"),
    *_training(188, "65B"),
    row("E193", "serving", "activations", verdict="near",
        why="a rule of thumb: at best for a request alone; batched tokens and logits set the peak"),
    row("E194", "serving", "activations, LLaMA-7B", fig("GB", None), verdict="right",
        why="as E193, a fifth of the weights"),
    row("E195", "serving", "activations, LLaMA-13B", fig("GB", None), verdict="right", why="as E194"),
    row("E196", "serving", "activations, LLaMA-33B", fig("GB", None), verdict="right", why="as E194"),
    row("E197", "serving", "activations, LLaMA-65B", fig("GB", None), verdict="right", why="as E194"),
    row("E198", "serving", "work with a cache", verdict="near", why="time, not memory"),
    row("E199", "KV cache", "formula", verdict="right",
        why="a formula: for one request, 16 bits, ungrouped keys; E200"),
    *_kv_table(),
    row("E220", "serving", "formula of all", verdict="right",
        why="a formula: with E193's activations; the caches of E200–E219 are not what it says"),
    row("E221", "training states", "traffic of ZeRO 3", verdict="right", why="communication, not memory"),
    row("E222", "activations", "share of activations, LLaMA-65B", fig("%", lambda: _share("65B")), differs=True,
        verdict="right", why="from our smaller activations: E191"),
    row("E223", "activations", "full recomputation",
        fig("bytes per layer, token, hidden element", lambda: per_hidden(SEVEN, "input"), 0, None),
        verdict="wrong", cause=INCOMPLETE, why="of each layer, not of all"),
    row("E224", "activations", "work of recomputing", verdict="right", why="time, not memory"),
    row("E225", "weights", "what PP × TP divide", verdict="right", why="a formula, in our laws on parallelism"),
    row("E226", "clusters", "data-parallel ranks", verdict="right", why="a formula: E056 counts it"),
    row("E227", "training states", "what PP × TP divide", verdict="wrong", cause=INCOMPLETE,
        why="a formula: TP divides gradients too, as E053 does"),
    row("E228", "activations", "growth with the sequence", verdict="wrong", cause=WORDS,
        why="a wording: its formula has a square; E064 counts both"),
    row("E229", "activations", "saved by flash attention, per head and pair of tokens", fig("bytes", _scores),
        differs=True, otherwise="wrong",
        why="the softmax's output is kept once; the file goes by the guide's list, which has it twice"),
)  # fmt: skip
