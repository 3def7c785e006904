"""What drafts tokens for a model under speculative decoding: a head for it, a module of it, a small model."""

import os
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from files.errors import HeadcountError
from files.reading import check_confined
from kvcache.formats.quantization import QuantizationScheme, resolve_quantization
from kvcache.models.catalog import load_model, named_config
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture, with_dtype
from kvcache.shape.layer import Attention, Layer
from kvcache.shape.parameters import projections, stage_tensors
from kvcache.shape.tensors import ExtraTensor, Tensor

Assumption = tuple[str, str, str]

EAGLE3_VOCABULARY = 32000  # of the published heads of Llama 3 and Qwen3; d2t maps it to the model's
EAGLE3_HIDDEN_STATES = 3  # of three layers of the model, joined (vLLM llama_eagle3.py, fc)
WIDTH_OF_MLP = 4  # hidden states, where a mixture has no MLP to take the width from
NAMES = {"eagle": "EAGLE head", "eagle3": "EAGLE-3 head", "mtp": "MTP module", "draft_model": "draft model"}


@dataclass(frozen=True, kw_only=True)
class Drafter:
    """A drafter's shape, and what of it the model lends: its embedding, its language-model head."""

    kind: str  # a key of NAMES
    arch: Architecture
    shares_head: bool
    quantization: str | None  # what its weights are asked for in; None: as its own checkpoint has them
    assumptions: tuple[Assumption, ...] = ()

    @property
    def name(self) -> str:
        return NAMES[self.kind]

    @property
    def shares_embedding(self) -> bool:
        return self.kind != "draft_model"

    @property
    def maps_vocabulary(self) -> bool:
        """Whether it knows fewer words than the model, so that its choices are looked up in the model's."""
        return self.kind == "eagle3" and not self.shares_head

    @property
    def scheme(self) -> QuantizationScheme:
        """The format of its weights."""
        return resolve_quantization(
            self.quantization,
            self.arch.native_quantization,
            is_moe=self.arch.is_moe,
            dtype=self.arch.dtype,
            spared=self.arch.unquantized,
        )

    def tensors(self, parallelism: Parallelism) -> list[Tensor]:
        """What one rank holds of it beside what the model lends."""
        lent = ("embedding",) * self.shares_embedding + ("lm_head",) * self.shares_head
        return [tensor for tensor in stage_tensors(self.arch, parallelism, 0) if tensor.component not in lent]


@cache
def find_drafter(
    target: Architecture, kind: str | None, model: str | None = None, quantization: str | None = None
) -> Drafter | None:
    """The drafter of this kind for a model in its serving dtype; None where nothing is computed to draft (n-grams).

    `model` is a catalog name or a path to a config.json; an EAGLE head of which neither is known is taken to have one
    layer as wide as the model's. `quantization` is what the model is asked for in, as its own module then is. Raises
    ValueError for a draft model without name, with states, or one that is not known.
    """
    if kind is None:
        return None
    if kind == "draft_model":
        return _draft_model(target, model)
    if target.is_compressed:
        raise HeadcountError(
            f"speculative decoding of {target.name} by its own {NAMES[kind]}: it keeps a window of its own "
            "beside compressed attention, which is not modelled; leave speculative decoding out, or take ngram"
        )
    if kind == "mtp" and model is not None and model.rstrip("/").endswith("-assistant"):
        raise HeadcountError(  # vLLM models/gemma4_mtp.py
            f"speculative decoding by {model}: an assistant of Gemma 4 reads the model's own KV cache, which is not "
            "modelled; leave speculative decoding out, or take ngram"
        )
    if kind == "mtp":
        return _mtp_module(target, quantization)
    if model is not None:
        check_confined(Path(model))
        if os.path.lexists(os.path.expanduser(model)):
            return _known_head(target, kind, model)
    return _assumed_head(target, kind)


def _draft_model(target: Architecture, model: str | None) -> Drafter:
    if model is None:
        raise HeadcountError(
            "speculative method draft_model: 'model' is missing; add the draft model to the JSON, such as "
            '"model": "meta-llama/Llama-3.2-1B-Instruct"'
        )
    arch = with_dtype(load_model(model), target.dtype)
    if arch.state_space is not None:
        raise HeadcountError(
            f"draft model {arch.name}: models with SSM state are not simulated as draft models; choose another"
        )
    return Drafter(kind="draft_model", arch=arch, shares_head=False, quantization=None)


def _mtp_module(target: Architecture, quantization: str | None) -> Drafter:
    """A layer as the model's last, with experts where that has them, after a projection of two hidden states."""
    hidden = target.hidden_size
    joins = ExtraTensor(component="attention", rows=hidden, cols=2 * hidden)
    kept = tuple(extra for extra in target.extra_tensors if extra.place in ("layer", "moe_layer"))
    last = target.layers[-1]
    if last.attention is not None and target.indexer is not None:  # the module chooses for itself
        last = replace(last, attention=replace(last.attention, indexer=target.indexer))
    arch = replace(
        target, name=f"MTP module of {target.name}", layers=(last,), extra_tensors=(*kept, joins),
        vision_parameters=0,
    )  # fmt: skip
    assumed = "one module as the model's last layer, with a projection of two hidden states; embedding and head lent"
    why = "vLLM models/deepseek_mtp.py; vLLM serves it only where the checkpoint has one"
    return Drafter(
        kind="mtp", arch=arch, shares_head=True, quantization=quantization, assumptions=(("drafter", assumed, why),)
    )


def _known_head(target: Architecture, kind: str, model: str) -> Drafter:
    """An EAGLE head whose config.json is at hand."""
    name, config = named_config(model)
    read = load_model(model)
    vocabulary = config.get("draft_vocab_size")
    words = vocabulary if isinstance(vocabulary, int) and 0 < vocabulary <= target.vocab_size else target.vocab_size
    head = _head(target, kind, read.layers, words, read.hidden_size)
    return replace(head, assumptions=(("drafter", f"{name}: {len(read.layers)} layers", model),))


def _assumed_head(target: Architecture, kind: str) -> Drafter:
    attention = target.attention
    if attention is None:
        raise HeadcountError(
            f"{target.name} has no attention, so no {NAMES[kind]} can be assumed for it; take draft_model"
        )
    plain = replace(attention, window=None, chunked=False, kv_owner=None, keys_as_values=False, topk=None, indexer=None)
    width = target.intermediate_size or WIDTH_OF_MLP * target.hidden_size
    words = min(EAGLE3_VOCABULARY, target.vocab_size) if kind == "eagle3" else target.vocab_size
    head = _head(target, kind, (Layer(attention=plain, intermediate_size=width),), words, target.hidden_size)
    assumed = f"{NAMES[kind]}: assumed, one layer as wide as the model's, {words:,} words"
    why = 'no config.json was given; "model" in --speculative-config may be a path to one'
    return replace(head, assumptions=(("drafter", assumed, why),))


def _head(target: Architecture, kind: str, layers: tuple[Layer, ...], words: int, hidden: int) -> Drafter:
    """Layers behind what joins the model's hidden states with the embedding of the token that it chose."""
    attention = layers[0].attention
    joined = EAGLE3_HIDDEN_STATES if kind == "eagle3" else 2
    place = "first" if kind == "eagle3" else "layer"  # EAGLE-3 joins the model's states once, EAGLE in every pass
    extra = [ExtraTensor(component="attention", rows=hidden, cols=joined * target.hidden_size, place=place)]
    if kind == "eagle3" and attention is not None:
        extra.append(_wider_projections(attention, hidden, len(layers)))
    arch = Architecture(
        name=f"{NAMES[kind]} of {target.name}",
        model_type="llama",
        layers=layers,
        hidden_size=hidden,
        vocab_size=words,
        max_position_embeddings=target.max_position_embeddings,
        extra_tensors=tuple(extra),
        num_rotary_tables=0,  # one more is as good as none beside the model's
        dtype=target.dtype,
    )
    return Drafter(kind=kind, arch=arch, shares_head=kind == "eagle", quantization=None)


def _wider_projections(attention: Attention, hidden: int, num_layers: int) -> ExtraTensor:
    """EAGLE-3's first layer projects the embedding beside the hidden state: as many inputs again."""
    from_hidden = projections(attention, hidden, Parallelism())
    rows = sum(rows for name, inputs, rows in from_hidden if inputs == hidden and name != "o")
    split = "rows" if attention.latent is None else None
    return ExtraTensor(component="attention", rows=rows // num_layers, cols=hidden, split=split)
