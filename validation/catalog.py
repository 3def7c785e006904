"""Writes the models of a folder of configs into the catalog; what only tokenizers or training need is left out.

    python -m validation.catalog FOLDER --source TEXT [--only NAME …]

FOLDER holds a folder for each model, `OWNER--MODEL`, with its config.json, and hf_quant_config.json where it has one. A
model whose shape another one has, of the folder or of the catalog, becomes an alias of it; in another weight format, a
build of it (`quantized`). Models that are known already, or are refused, are left alone and listed.
"""

import argparse
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from files.documents import read_json
from files.errors import HeadcountError
from kvcache.models.catalog import ALIASES, MODELS, model_files, slug_of
from kvcache.models.config.checkpoint_format import quantization_config
from kvcache.models.config.reader import from_config
from kvcache.shape.architecture import Architecture

Config = dict[str, Any]
_NOISE: Final = re.compile(
    r"architectures|auto_map|_name_or_path|transformers_version|.*token_id|initializer.*|.*dropout.*|use_cache"
    r"|.*_eps|epsilon|rms_norm|hidden_act.*|activation.*|router_aux.*|output_.*|pretraining_tp|ep_size|scoring_func"
    r"|topk_group|n_group|norm_topk_prob|routed_scaling_factor|rope_theta|rope_interleave|image_.*|video_.*"
    r"|time_step_.*|rescale_.*|residual_in_fp32|mamba_hidden_act|mamba_proj_bias|mlp_hidden_act|use_mamba_kernels"
    r"|chunk_size|quantization_config|compression_config|indexer_types|mtp_.*|num_nextn_predict_layers|aux_loss_alpha"
    r"|.*_rope_theta|add_cross.*|bad_words.*|begin_supp.*|chunk_size_.*|cross_attention_hidden_size|decoder_start.*"
    r"|diversity.*|do_sample|early_stop.*|exponential_.*|finetuning.*|forced_.*|id2label|label2id|is_decoder|prefix"
    r"|length_penalty|m.._length|no_repeat.*|num_beam.*|num_return.*|problem_type|pruned.*|remove_inv.*|repetition.*"
    r"|return_dict.*|suppress.*|task_spec.*|temperature|tf_leg.*|tie_encoder.*|top_[kp]|torchscript|typical_p"
    r"|use_bfloat16|encoder_no.*|ignore_index|.*_placeholder|.*_situ_.*"
)  # fmt: skip
_FEW, _LONGEST = 12, 20_000  # members of a list; letters of a quantization_config
_LISTS: Final = ("modules_to_not_convert", "exclude_modules", "ignore", "ignored_layers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--source", required=True, help="where the configs come from, for the files' `source`")
    parser.add_argument("--only", nargs="*", help="names of the models to take")
    asked = parser.parse_args()
    entries = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in model_files()}
    for name, config in _configs(asked.folder):
        if (asked.only is None or name in asked.only) and slug_of(name) not in _known(entries):
            print(f"{name}: {_enter(entries, name, config, asked.source)}")
    for stem, entry in entries.items():
        (MODELS.folder / f"{stem}.json").write_text(json.dumps(entry, indent=1) + "\n", encoding="utf-8")
    ALIASES.write_text(json.dumps(dict(sorted(_aliases(entries))), indent=1) + "\n", encoding="utf-8")


def _configs(folder: Path) -> Iterator[tuple[str, Config]]:
    """Every model's name and config; those whose weights nothing packs come first, since others are their builds."""
    found: list[tuple[str, Config]] = []
    for path in sorted(folder.glob("*/config.json")):
        config = dict(read_json(path))
        beside = path.with_name("hf_quant_config.json")
        if beside.is_file() and config.get("quantization_config") is None:
            config["quantization_config"] = dict(read_json(beside))
        found.append((path.parent.name.replace("--", "/", 1), config))
    return iter(sorted(found, key=lambda pair: "quantization_config" in pair[1]))


def _enter(entries: dict[str, Any], name: str, config: Config, source: str) -> str:
    """Add the model, and say as what. A model that is refused is left out."""
    try:
        shape = from_config(config, name=name)
        if shape.assumptions:
            return f"not certain: {'; '.join(why for _, _, why in shape.assumptions)}"
        kept, packed = _kept(config, shape), _packed(config, shape)
        if len(json.dumps(packed)) > _LONGEST:
            return "its lists of packed modules are too long for the catalog; give its config.json"
        base = next((stem for stem, entry in entries.items() if _plain(_read(entry)) == _plain(shape)), None)
    except HeadcountError as error:
        return f"refused: {error}"
    if base is None:
        native = {"quantization_config": packed} if packed else {}
        entries[slug_of(name)] = {"name": name, "source": source, "aliases": [], "config": kept | native}
        return "a model"
    entry = entries[base]
    if packed and from_config({**entry["config"], "quantization_config": packed}, name="") != _read(entry):
        entry.setdefault("quantized", {})[name] = packed
        return f"a build of {entry['name']}"
    entry.setdefault("aliases", []).append(name)
    return f"an alias of {entry['name']}"


def _kept(config: Config, shape: Architecture) -> Config:
    """The keys that say what the model is made of; no long list that only repeats what the others say."""
    kept = _without_noise(config)
    for key in [key for key, value in kept.items() if isinstance(value, list) and len(value) > _FEW]:
        without = {other: value for other, value in kept.items() if other != key}
        try:
            kept = without if _plain(from_config(without, name=shape.name)) == _plain(shape) else kept
        except HeadcountError:
            continue
    assert _plain(from_config(kept, name=shape.name)) == _plain(shape), f"{shape.name}: a key that was left out counts"
    return kept


def _without_noise(config: Mapping[str, Any]) -> Config:
    """The keys that are not noise, at each level, with a value."""
    kept = {key: value for key, value in config.items() if not _NOISE.fullmatch(key) and value != ""}
    return {key: _without_noise(value) if key == "text_config" else value for key, value in kept.items()}


def _packed(config: Config, shape: Architecture) -> Config:
    """What of its quantization decides the weights: lists of modules as short as they may be."""
    found = quantization_config(config)
    if found is None:
        return {}
    packed = {key: value for key, value in found.items() if key not in ("quantization", "producer")}
    for key in _LISTS:
        names = packed.get(key)
        if not names:
            continue
        shorter = list(dict.fromkeys(re.sub(r"\.\d+(?=\.|$)", ".*", name) for name in names))
        without = {other: value for other, value in packed.items() if other != key}
        for trial in (without, {**packed, key: shorter}):
            if from_config({**config, "quantization_config": trial}, name=shape.name) == shape:
                packed = trial
                break
    return packed


def _read(entry: Mapping[str, Any]) -> Architecture:
    return from_config(entry["config"], name="")


def _plain(shape: Architecture) -> Architecture:
    """The shape whatever packs its weights, and however long its contexts may be said to be."""
    layers = tuple(replace(layer, formats=()) for layer in shape.layers)
    return replace(
        shape, name="", layers=layers, native_quantization=None, declared_kv_cache=None, unquantized=(),
        lm_head_format=None, assumptions=(),
    )  # fmt: skip


def _known(entries: Mapping[str, Any]) -> set[str]:
    return set(entries) | {alias for alias, _ in _aliases(entries)}


def _aliases(entries: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Every spelling that names an entry beside its own file's."""
    for stem, entry in entries.items():
        others = (*entry.get("aliases", ()), *entry.get("quantized", ()))
        for each in (entry["name"].split("/")[-1], *others, *(other.split("/")[-1] for other in others)):
            yield slug_of(each), stem


if __name__ == "__main__":
    main()
