"""What DeepSeek-V4's layers keep: a window, compressed entries, and the sums that the next entries are made of.

Source: vLLM 0.33, models/deepseek_v4 (attention.py, compressor.py), v1/attention/backends/mla/sparse_swa.py, and
v1/core/kv_cache_planning.py (`_get_packed_kv_cache_groups`).
"""

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil

from files.errors import HeadcountError
from kvcache.layout.layer_caches import LayerCache
from kvcache.shape.architecture import Architecture
from kvcache.shape.layer import CHOSEN_RATIO, SUMMED_RATIO, Attention

_ENTRY_BYTES = 584  # 448 values in FP8, 64 rotary ones in 16 bits, 8 bytes of scales
_PAGE_ALIGNMENT = 576
_WINDOW_BLOCK = 64  # tokens in a block
_STATE_BLOCKS: Mapping[int, int] = {CHOSEN_RATIO: 4, SUMMED_RATIO: 8}
Pages = Mapping[int, list[LayerCache]]  # a kind's caches by the size of their pages
BLOCK_SIZE = 256  # of entries, the only one that the kernels take


def entry_bytes_per_token(attention: Attention) -> Fraction:
    """What a token leaves for good in one layer: its share of an entry, and of an indexer's key."""
    assert attention.compressed is not None, "asked of a layer that compresses nothing"
    ratio = attention.compressed.ratio
    if ratio is None:
        return Fraction(0)
    key = attention.indexer.cached_bytes if attention.indexer else 0
    return Fraction(_ENTRY_BYTES + key, ratio)


def compressed_caches(arch: Architecture, block_size: int) -> Iterator[LayerCache]:
    """Every layer's caches, in vLLM's order: the indexer's, the window's, entries, sums.

    Raises `ValueError` on a block size that the kernels do not take.
    """
    if block_size != BLOCK_SIZE:
        raise HeadcountError(
            f"block_size is {block_size}; the kernels for the compressed attention of {arch.name!r} take {BLOCK_SIZE}"
        )
    for index, layer in enumerate(arch.layers):
        if layer.attention is not None:
            yield from _of_layer(index, layer.attention)


def _of_layer(layer: int, attention: Attention) -> Iterator[LayerCache]:
    compressed = attention.compressed
    assert compressed is not None, "all layers are alike in this"
    if attention.indexer is not None:
        yield _entries(layer, attention, attention.indexer.cached_bytes)
        yield _sums(layer, attention, attention.indexer.head_dim)
    yield LayerCache(
        layer=layer,
        window=attention.window,
        block_size=_WINDOW_BLOCK,
        page_size_bytes=_page(_WINDOW_BLOCK * _ENTRY_BYTES),
    )
    if compressed.ratio is not None:
        yield _entries(layer, attention, _ENTRY_BYTES)
        yield _sums(layer, attention, attention.head_dim)


def _entries(layer: int, attention: Attention, entry_bytes: int) -> LayerCache:
    assert attention.compressed is not None and attention.compressed.ratio is not None, "asked of entries"
    held = BLOCK_SIZE // attention.compressed.ratio
    return LayerCache(layer=layer, block_size=BLOCK_SIZE, page_size_bytes=_page(held * entry_bytes))


def _sums(layer: int, attention: Attention, width: int) -> LayerCache:
    """In fp32: values with their weights, for each of the entries that a token is in."""
    compressed = attention.compressed
    assert compressed is not None and compressed.ratio is not None, "asked of entries"
    block_size = _STATE_BLOCKS[compressed.ratio]
    size_bytes = block_size * 2 * compressed.overlap * width * 4
    return LayerCache(
        layer=layer, window=compressed.state_tokens, block_size=block_size, page_size_bytes=_page(size_bytes)
    )


def _page(size_bytes: int) -> int:
    return -(-size_bytes // _PAGE_ALIGNMENT) * _PAGE_ALIGNMENT


def packed_groups(caches: Sequence[LayerCache]) -> list[list[LayerCache]]:
    """Caches of one kind, side by side in a block, whatever their pages; a kind of many caches in several groups.

    Where each page size of a kind is as frequent as the others, its groups hold as many of each: as many as leave the
    least empty, at least those of the largest such kind with several sizes. Without any, windows fill up the block
    that the others need. One kind alone is one group.
    """
    kinds: dict[tuple[object, ...], dict[int, list[LayerCache]]] = {}
    for cache in caches:
        kinds.setdefault(cache.kind, {}).setdefault(cache.page_size_bytes, []).append(cache)
    pages = list(kinds.values())
    ways = [1] if len(pages) == 1 else _even_ways(pages) or _filling_ways(pages)
    return [group for own, count in zip(pages, ways, strict=True) for group in _dealt(own, count)]


def _dealt(pages: Pages, ways: int) -> list[list[LayerCache]]:
    """A kind's caches in so many groups, repeat by repeat of its page sizes; of one group, in their own order."""
    if ways == 1:
        return [sorted((cache for own in pages.values() for cache in own), key=lambda cache: cache.layer)]
    repeats = list(zip(*pages.values(), strict=True))
    return [[cache for repeat in repeats[first::ways] for cache in repeat] for first in range(ways)]


def _even_ways(kinds: Sequence[Pages]) -> list[int]:
    """In how many groups each kind goes; empty where none with several page sizes has as many of each."""
    counts = [len(next(iter(pages.values()))) if len(set(map(len, pages.values()))) == 1 else 0 for pages in kinds]
    floor = max((count for pages, count in zip(kinds, counts, strict=True) if len(pages) > 1), default=0)
    if not floor:
        return []
    even = [count for count in counts if count]
    sizes = range(floor, max(even) + 1)
    size = min(sizes, key=lambda each: (sum(-count % each for count in even), -each))
    return [max(1, ceil(count / size)) for count in counts]


def _filling_ways(kinds: Sequence[Pages]) -> list[int]:
    """The same where windows, which may go down to one cache a group, are cut to the block that the others need."""
    slides = [next(iter(pages.values()))[0].window is not None for pages in kinds]
    block_bytes = max(
        max(pages) if is_window else sum(page * len(own) for page, own in pages.items())
        for pages, is_window in zip(kinds, slides, strict=True)
    )
    return [
        ceil(sum(map(len, pages.values())) / max(block_bytes // next(iter(pages)), 1)) if is_window else 1
        for pages, is_window in zip(kinds, slides, strict=True)
    ]
