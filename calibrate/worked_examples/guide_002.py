"""Guide 002: parameters and training memory of GPT-2."""

from dataclasses import replace

from calibrate.worked_examples.causes import INCOMPLETE, WORDS
from calibrate.worked_examples.example import fig, row
from calibrate.worked_examples.shapes import GPT2, SEVEN, head_dim, part, per
from kvcache.models.parameters import layer_tensors, total_parameters
from kvcache.parallelism import Parallelism
from kvcache.training.states import PRECISIONS

# Formulas are evaluated at GPT-2 small: h, vocabulary, positions, layers, MLP width.
_H, _V, _S, _L, _D = 768, 50_257, 1024, 12, 3072
_QKV = 3 * _H**2 + 3 * _H
_FFN = 2 * _H * _D + _D + _H
_ALL = _H * (_V + _S) + _L * (4 * _H**2 + 9 * _H + 2 * _D * _H + _D) + 2 * _H


def _fused_qkv() -> int:
    tensors = layer_tensors(GPT2, Parallelism(), 0)
    return sum(tensor.elements for tensor in tensors if tensor.component == "attention" and tensor.rows == 3 * _H)


ROWS = (
    row("E144", "training states", "fp32: weights, gradients",
        fig("bytes per parameter", lambda: per("weights", "fp32")),
        fig("bytes of gradients", lambda: per("gradients", "fp32"), 1, 1)),
    row("E145", "training states", "mixed: weights, gradients",
        fig("bytes per parameter", lambda: per("weights") + PRECISIONS["bf16-mixed"].master_bytes),
        fig("bytes of gradients", lambda: per("gradients"), 1, 1),
        verdict="near", why="6 bytes of gradients hold an fp32 copy beside the 16 bits"),
    row("E146", "training states", "how much mixed precision adds", verdict="wrong", cause=WORDS,
        why="a wording: half again as much is not slight"),
    row("E147", "parameters", "word embedding",
        fig("parameters", lambda: part(replace(GPT2, learned_positions=0), "embedding"),
            claim=_V * _H, expected=_V * _H)),
    row("E148", "parameters", "position embedding",
        fig("parameters", lambda: part(GPT2, "embedding") - part(replace(GPT2, learned_positions=0), "embedding"),
            claim=_S * _H, expected=_S * _H),
        verdict="near", why="s is the longest context, not the run's"),
    row("E149", "parameters", "a layer norm",
        fig("parameters", lambda: part(GPT2, "norms") / (2 * _L + 1), claim=2 * _H, expected=2 * _H)),
    row("E150", "parameters", "the norms of a block",
        fig("parameters", lambda: (part(GPT2, "norms") - 2 * _H) / _L, claim=8 * _H, expected=4 * _H),
        cause=WORDS, why="both together, not each; its total is right"),
    row("E151", "parameters", "queries, keys, values",
        fig("parameters", _fused_qkv, claim=_QKV, expected=_QKV)),
    row("E152", "parameters", "a head's width", fig("elements", lambda: head_dim(768, 12))),
    row("E153", "parameters", "attention",
        fig("parameters", lambda: part(GPT2, "attention") / _L, claim=4 * (_H**2 + _H), expected=4 * (_H**2 + _H)),
        why="with as many KV heads as heads"),
    row("E154", "parameters", "MLP",
        fig("parameters", lambda: part(GPT2, "mlp") / _L, claim=_FFN, expected=_FFN),
        why="two matrices; gated ones are three"),
    row("E155", "parameters", "GPT-2 small", fig("parameters", lambda: total_parameters(GPT2), 1, claim=_ALL)),
    row("E156", "activations", "formula", verdict="right", why="a formula, in bytes; E024 counts it"),
    row("E157", "training states", "Adam", fig("bytes per parameter", lambda: per("optimizer", "fp32"))),
    row("E158", "training states", "Adafactor", verdict="near",
        why="a formula: rows with columns of each matrix are far less, as `--optimizer adafactor` counts"),
    row("E159", "training states", "8-bit Adam",
        fig("bytes per parameter", lambda: per("optimizer", "fp32", "adamw-8bit")),
        cause=INCOMPLETE, why="two moments of a byte each, scales of blocks on top"),
    row("E160", "activations", "dropout", verdict="wrong", cause=WORDS,
        why="a wording: random, and its mask is kept, a byte per element"),
    row("E161", "parameters", "where most are",
        fig("times attention's in the MLP", lambda: part(SEVEN, "mlp") / part(SEVEN, "attention"),
            claimed=None, expected=2),
        verdict="wrong", cause=WORDS, why="in the MLP"),
    row("E162", "KV cache", "where latent attention comes from", verdict="wrong", cause=WORDS,
        why="a wording: DeepSeek-V2 had it before"),
)  # fmt: skip
