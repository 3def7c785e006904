"""Counts the parameters of models that transformers builds without memory; run by an interpreter that has it.

usage: python parameters_probe.py CONFIGS.jsonl > COUNTS.jsonl

Each line of the input is `{"name": ..., "config": ...}`, the config as in `config.json`. A line comes out for each:
`{"name", "transformers", "model_class", "total", "parameters", "buffers"}`, or `{"name", "transformers", "unknown"}`
with the reason. `parameters` counts by component, tied ones once; `buffers` are what a checkpoint holds besides them.
"""

import os
import re

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import torch
import transformers
from each_case import print_each
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

# The first that matches a tensor's name is its component: most are told by the module that holds them.
COMPONENTS = (
    ("vision_head", r"vision\w*\.head\."),
    ("vision", r"vision|projector|visual|audio|image_newline|resampler|model\.merger\."),
    ("residual", r"altup|laurel|per_layer_(input|projection|model)|layer_scalar|\b(attn_|ffn_)?hc(_head)?\."),
    ("lm_head", r"lm_head|embed_out"),
    ("embedding", r"embed(?!ding_norm)|\bwte\b|\bwpe\b"),
    ("norms", r"norm|\bln_\w+"),
    ("attention", r"attn|attention"),
    ("shared_experts", r"shared_expert"),
    ("router", r"\.router\.|\.gate\.|e_score_correction_bias|\.(feed_forward|mlp)\.expert_bias"),
    ("experts", r"\.experts\."),
    ("mlp", r"\.mlp\.|\.fc\d\.|\.feed_forward\.|\.shared_mlp\.|\.mixer\.(up|down)_proj\.|_latent_proj\."),
    ("attention", r"\.mixer\.[qkvo]_proj\."),
)
# Modules that hold a state are told by their convolution.
STATE = re.compile(r"(.*\blayers\.\d+\.\w+)\.conv(1d)?\.")
# A checkpoint's own weight format changes how its tensors are stored, not how many parameters there are.
NOT_SHAPE = ("quantization_config", "model_type")


def component(name, states=(), has_experts=False):
    """Where a tensor of this name belongs, beside modules that hold a state."""
    if name.startswith(states):
        return "state_space"
    if has_experts and ".shared_mlp." in name:
        return "shared_experts"  # Granite 4: beside experts, else the only MLP
    return next((found for found, pattern in COMPONENTS if re.search(pattern, name)), "other")


def build(fields):
    """The model on torch's meta device: every tensor's name with its shape, no memory."""
    model_type = fields["model_type"]
    if model_type not in CONFIG_MAPPING:
        raise ValueError(f"transformers {transformers.__version__} has no model_type {model_type!r}")
    shape = {key: value for key, value in fields.items() if key not in NOT_SHAPE}
    text = shape.get("text_config")
    if text is not None:
        shape["text_config"] = {key: value for key, value in text.items() if key != "quantization_config"}
    config = AutoConfig.for_model(model_type, **shape)
    is_text = text is None and "vision_config" not in shape
    loader = AutoModelForCausalLM if is_text else AutoModelForImageTextToText
    with torch.device("meta"):
        return loader.from_config(config)


def counts(tensors, names):
    """Elements by component; `names` are those of all the model's parameters."""
    states = tuple({match[1] + "." for match in map(STATE.match, names) if match and "vision" not in match[1]})
    has_experts = any(".experts." in name for name in names)
    found = {}
    for name, tensor in tensors:
        where = component(name, states, has_experts)
        found[where] = found.get(where, 0) + tensor.numel()
    return found


def measure(case):
    """One line of the output."""
    line = {"name": case["name"], "transformers": transformers.__version__}
    try:
        model = build(case["config"])
    except Exception as error:  # whatever stops transformers is its answer to this config
        return {**line, "unknown": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    parameters = list(model.named_parameters())  # tied ones once
    names = [name for name, _ in parameters]
    persistent = model.state_dict().keys()
    buffers = [(name, buffer) for name, buffer in model.named_buffers() if name in persistent]
    return {
        **line,
        "model_class": type(model).__name__,
        "total": sum(parameter.numel() for _, parameter in parameters),
        "parameters": counts(parameters, names),
        "buffers": counts(buffers, names),
    }


if __name__ == "__main__":
    print_each(measure)
