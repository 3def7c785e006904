"""How many bytes of weights the files of a model's folder hold, where they say so."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from files.documents import parse_json, read_json
from files.reading import InputError, shown
from files.schema import Lenient, typed
from kvcache.formats.quantization import QuantizationScheme, resolve_quantization
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from kvcache.shape.parameters import stage_tensors
from kvcache.shape.tensors import Tensor

GIB = 2**30
_INDEX = "model.safetensors.index.json"
_LONGEST_HEADER = 100_000_000  # bytes: the limit of the safetensors format
_MOST_OFF = 0.25  # files further from the count are another model's, or their index is wrong
_WORTH_SAYING = 0.01
Bytes = Annotated[int, Meta(ge=0, le=2**50, description="a number of bytes from 0 to 2^50")]


class _Metadata(Lenient, frozen=True, kw_only=True):
    total_size: Bytes | None = None


class _Index(Lenient, frozen=True, kw_only=True):
    metadata: _Metadata | None = None
    weight_map: dict[str, str] | None = None


class _Entry(Lenient, frozen=True, kw_only=True):
    data_offsets: tuple[Bytes, Bytes]


@dataclass(frozen=True, kw_only=True)
class _Files:
    """`sizes`: bytes by tensor, where the headers are there; `names`: every tensor's name, where one is known."""

    stated_bytes: int | None = None
    sizes: Mapping[str, int] | None = None
    names: tuple[str, ...] = ()


def with_file_sizes(arch: Architecture, folder: Path) -> Architecture:
    """The model with weights as large as the files in its folder say, from their headers or the index's `total_size`.

    An assumption says where they differ from the count by over 1 %. Raises `ValueError` on an index or header that
    cannot be read.
    """
    files = _files(str(folder), _stamps(folder))
    counted = _counted_bytes(arch)
    left_out = [name for name in files.names if not _is_loaded(name, arch)]
    if files.sizes is not None:
        stated, source = sum(size for name, size in files.sizes.items() if _is_loaded(name, arch)), "their headers"
    elif files.stated_bytes:
        stated, source = files.stated_bytes, f"total_size of {_INDEX}"
    else:
        return arch
    off = stated / counted - 1
    is_used = abs(off) <= _MOST_OFF and (files.sizes is not None or not left_out)
    said = f"{stated / GIB:.2f} GiB in files, {counted / GIB:.2f} GiB counted ({off:+.1%})"
    if abs(off) <= _WORTH_SAYING:
        return replace(arch, file_share=stated / counted) if is_used else arch
    if is_used:
        why = f"{source}; the files are taken"
    elif left_out:
        why = (
            f"{source}, with {len(left_out):,} tensors that are not loaded ({left_out[0][:60]}, …); the count is taken"
        )
    else:
        why = f"{source}; too far from config.json, so that the count is taken: check that both are of one model"
    row = ("weights", said, why)
    found = replace(arch, file_share=stated / counted) if is_used else arch
    return replace(found, assumptions=(*arch.assumptions, row))


def _counted_bytes(arch: Architecture) -> float:
    """What the checkpoint's tensors take in its files: nothing padded, kept twice or widened to fp32."""
    scheme = resolve_quantization(
        None, arch.native_quantization, is_moe=arch.is_moe, dtype=arch.dtype, spared=arch.unquantized
    )
    return sum(_file_bytes(scheme, tensor) for tensor in stage_tensors(arch, Parallelism(pad_vocabulary_to=1), 0))


def _file_bytes(scheme: QuantizationScheme, tensor: Tensor) -> float:
    own = scheme.of(tensor)
    if own is None:
        return 2.0 * tensor.parameters
    return tensor.parameters * own.weight_bits / 8 + tensor.count * own.scale_bytes(tensor.rows, tensor.cols)


def _is_loaded(name: str, arch: Architecture) -> bool:
    """Whether vLLM loads the tensor: not the layers for speculative decoding, or copies of others."""
    words = name.split(".")
    layers = [
        int(words[index + 1])
        for index, word in enumerate(words[:-1])
        if word == "layers" and words[index + 1].isdigit()
    ]
    is_beyond = bool(layers) and layers[0] >= arch.num_hidden_layers and "vision" not in name and "visual" not in name
    is_copy = name.endswith("rotary_emb.inv_freq") or (arch.tie_word_embeddings and name.endswith("lm_head.weight"))
    return not ("mtp" in words or is_beyond or is_copy)


def _stamps(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """The weights' files with what changes when they do."""
    found = sorted(path for path in folder.iterdir() if path.name == _INDEX or path.suffix == ".safetensors")
    return tuple((path.name, status.st_mtime_ns, status.st_size) for path in found for status in (os.stat(path),))


@cache
def _files(folder: str, stamps: tuple[tuple[str, int, int], ...]) -> _Files:
    present = {name for name, _, _ in stamps}
    index = _Index()
    if _INDEX in present:
        path = Path(folder) / _INDEX
        index = typed(read_json(path, "result_bytes"), _Index, path)
    named = dict.fromkeys(index.weight_map.values()) if index.weight_map else dict.fromkeys(sorted(present - {_INDEX}))
    stated = index.metadata.total_size if index.metadata else None
    names = tuple(index.weight_map or ())
    if not named or not present.issuperset(named):
        return _Files(stated_bytes=stated, names=names)
    sizes = {name: size for file in named for name, size in _header(Path(folder) / file)}
    return _Files(stated_bytes=stated, sizes=sizes, names=tuple(sizes))


def _header(path: Path) -> Iterator[tuple[str, int]]:
    """(tensor, bytes) of a safetensors file: 8 bytes with the header's length, then the header as JSON."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= _LONGEST_HEADER else b""
    if len(text) != length:
        raise InputError(f"{shown(path)}: no safetensors file: its header is cut off or too long; fetch it again")
    try:
        found = parse_json(text.decode(), shown(path))
    except UnicodeDecodeError:
        raise InputError(f"{shown(path)}: no safetensors file: its header is no text; fetch it again") from None
    for name, entry in found.items() if isinstance(found, dict) else ():
        if name != "__metadata__":
            start, end = typed(entry, _Entry, path).data_offsets
            yield name, end - start
