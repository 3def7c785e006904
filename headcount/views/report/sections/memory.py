"""Where each GPU's memory goes."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import GIB, gib
from headcount.views.report.charts.chart import Bar, Bars, Limit
from headcount.views.report.parts import Part

TITLE = "Memory of each GPU"
ORDER = 25
SHOWN_BY = "headcount memory"
KV_CACHE = "KV cache"


def parts(answer: ReadJson) -> Iterator[Part]:
    found = answer["report"].get("memory")
    if found is None:
        return
    total, begin, bars = found["total_bytes"], 0, []
    for part in found["parts"]:
        kind = "warning" if part["is_missing"] else "marked" if part["name"] == KV_CACHE else "plain"
        end = begin + part["bytes"]
        bars.append(Bar(part["name"], end / GIB, gib(part["bytes"]), kind, begin / GIB))
        begin = end
    limit = None if found["fits"] else Limit(total / GIB, f"the GPU's {total / GIB:,.1f} GiB")
    yield Bars(
        title=_title(found), note=_note(found), axis_name="GiB of one GPU", bars=bars, limit=limit,
        columns=("part", "size"),
    )  # fmt: skip


def _title(found: ReadJson) -> str:
    where = f"{found['gpu']} at TP {found['tp']}"
    if not found["fits"]:
        return f"It does not fit on {where}: the parts pass the end of the GPU's memory"
    size = next((part["bytes"] for part in found["parts"] if part["name"] == KV_CACHE), 0)
    return f"{gib(size)} of each {where} hold the KV cache: {found['kv_cache_tokens']:,} tokens"


def _note(found: ReadJson) -> str:
    if not found["fits"]:
        return ""
    low, high = found["num_gpu_blocks_low"], found["num_gpu_blocks_high"]
    size, share = found["block_size"], found["gpu_memory_utilization"]
    unit = size if found.get("engine") == "sglang" else 1
    interval = "as given" if low == high else f"90 % interval: {low * unit:,} to {high * unit:,}"
    if found.get("engine") == "sglang":
        return (
            f"{found['kv_cache_tokens']:,} tokens ({interval}), in pages of "
            f"{size}. 'activations, CUDA graphs' is what mem_fraction_static {share:g} leaves."
        )
    return (
        f"{found['num_gpu_blocks']:,} blocks of {size} tokens ({interval}); "
        f"they hold {found['max_concurrency']:,.1f} requests of the full {found['max_model_len']:,} tokens, or more "
        f"shorter ones. 'left to others': memory that gpu_memory_utilization {share:g} keeps from vLLM."
    )
