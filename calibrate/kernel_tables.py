"""Which constants of the step-time terms measured kernel times ask for."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from kvcache.architecture import Architecture
from kvcache.catalog import find_gpu, load_model
from kvcache.memory_terms import parse_version
from kvcache.parallelism import Parallelism
from kvcache.parameters import Tensor
from kvcache.quantization import find_quantization
from simulator.latency._constants import Constants, constants_for
from simulator.latency._terms import Rank, all_reduce_s, attention, experts, gemm
from simulator.latency_model import Deployment
from simulator.step_time import FloatArray

FOLDER = Path("measured") / "op_tables"
GPUS = {
    "a100_sxm": "a100-80gb",
    "h100_sxm": "h100-sxm",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "b200-sxm",
    "l40s": "l40s",
}
# The tables' words beside ours. Their `fp8` experts are one kernel for one scale per tensor, on Hopper slower than
# 16 bits; published FP8 checkpoints have a scale per block.
GEMM_FORMATS = {"bfloat16": "bf16", "fp8": "fp8", "nvfp4": "nvfp4"}
EXPERT_FORMATS = {
    "bf16": ("bfloat16",),
    "fp8": ("fp8_block",),
    "nvfp4": ("nvfp4",),
    "mxfp4": ("w4a8_mxfp4_mxfp8", "w4a16_mxfp4"),  # the first is what Blackwell serves gpt-oss with
    "int4-experts": ("int4_wo",),
}
DEALT = "power_law_1.01"
CHANGED, OLDER_FORMATS = "0.24.0", ("bf16", "fp8")  # until when, in what, vLLM had other kernels for experts
OTHER_ACTIVATION = "situ"  # kernels of a model whose experts have an activation of their own
CONSTANT_KEYS = {"nvfp4": "fp4", "int4-experts": "int4"}  # weight formats under other names in the constants
# Keys that no table has go by those that are most like them: where a format has no kernels of its own, by what it is
# unpacked to.
_EXPERTS_ALIKE = {"int8": "fp8", "fp4": "int4"}
ALIKE = {
    "gemm_compute_share": {"fp16": "bf16", "int8": "fp8"},
    "expert_compute_share": _EXPERTS_ALIKE,
    "expert_start_s": _EXPERTS_ALIKE,
    "expert_activation_bytes_per_element": _EXPERTS_ALIKE,
}
# A start below the smallest kernel of any table is a cache's doing: repeated kernels find small weights in the L2 of an
# L40S (96 MB). Neither it nor what multiplies it is written down.
SMALLEST_KERNEL_S = 1.7e-6
FEWEST_ROWS = 50  # of a fit that is written down; all-reduces have 51
CACHE_BITS = {"bfloat16": "16", "fp8": "8"}
ELEMENT_BYTES = 2  # messages are counted in 16-bit elements: only so A100, H100 reach NCCL's known bandwidths
SMALLEST_GEMM = 512  # rows or columns: below, no layer of a served model
WIDE_GEMM = 4096  # rows: below, quantizing the activations by itself, which served models fuse, outweighs the multiply
FEWEST_EXPERTS, NARROWEST_EXPERT, MOST_RANKS = 16, 192, 8  # as served today, on one node
# Tokens per expert: so few rarely choose the same one, so many leave 0.2 % of them out if dealt at random.
APART_TOKENS, EVERY_EXPERT_TOKENS = 1 / 8, 6
MOST_TOKENS = 16384
FROM_MEMORY_BYTES = 2.56e8  # twice the largest L2 cache (B200, 126 MB): what a repeated kernel can't find there
SHORT_CONTEXT, FEW_SEQUENCES = 64, 8  # a decode kernel of this size is its start
SHORTEST_PREFILL, SHORTEST_PREFILL_S = 256, 50e-6  # below, a kernel's start is what is measured
MESSAGES = (2**10, 2**26)  # elements: one token of the smallest model to 8192 tokens of the largest
# Where the search starts for a constant that is shipped as nothing, or as bounding nothing.
FIRST_GUESS = {
    "prefill_attention_extra_positions": 300.0,
    "decode_attention_compute_share": 0.2,
    "expert_activation_bytes_per_element": 8.0,
}
GRAPH_ELEMENTS = 2**21  # 512 tokens of 4096 elements
LOSS_SCALE = 0.1  # log residuals beyond this count linearly
MOST_ROWS = 6000  # of a fit: more change the third digit

Free = tuple[str, str]  # a constant with its key; "" where it has none
Predict = Callable[[Constants], FloatArray]


@dataclass(frozen=True, eq=False)
class Rows:
    """Measured kernels of one term, with what the term says of them under given constants.

    `shapes` holds the properties by which the error is broken down; the first is the one that fits are repeated along.
    """

    name: str
    measured_s: FloatArray
    shapes: pd.DataFrame
    term_s: Predict
    free: tuple[Free, ...]

    def log_errors(self, constants: Constants) -> FloatArray:
        """Natural logarithm of predicted over measured."""
        return np.log(self.term_s(constants) / self.measured_s)

    def where(self, mask: Any) -> "Rows":
        chosen = np.asarray(mask)
        return replace(
            self,
            measured_s=self.measured_s[chosen],
            shapes=self.shapes[chosen],
            term_s=lambda constants: self.term_s(constants)[chosen],
        )


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """One constant as the tables ask for it; `low`, `high`: the same from each shape class alone."""

    gpu: str
    constant: str
    key: str
    value: float
    low: float
    high: float
    rows: int
    median_error_percent: float
    shipped: float
    shipped_error_percent: float


def available(data: Path) -> list[str]:
    """The tables' names of the GPUs that are there. Raises ValueError where none is."""
    found = [name for name in GPUS if (data / FOLDER / name).is_dir()]
    if not found:
        raise ValueError(f"no kernel tables in {data / FOLDER}; give the folder that holds {FOLDER}/<gpu>/<family>")
    return found


def read_table(data: Path, gpu: str, family: str, name: str, *, before: str | None = None) -> pd.DataFrame | None:
    """The newest release's table, or that before a release, with times in seconds; None where there is none."""
    files = sorted(
        (data / FOLDER / gpu / family / "vllm").glob(f"*/{name}_perf.parquet"),
        key=lambda path: parse_version(path.parent.name),
    )
    if before is not None:
        files = [path for path in files if parse_version(path.parent.name) < parse_version(before)]
    if not files:
        return None
    table = pd.read_parquet(files[-1])
    table["measured_s"] = table["latency"] / 1e3
    return table[table["measured_s"] > 0]


def _releases(data: Path, gpu: str, family: str) -> list[str]:
    return [path.name for path in (data / FOLDER / gpu / family / "vllm").glob("*")]


def all_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Every term that this GPU's tables can judge, fits in the order in which they build on each other."""
    builders: Sequence[Callable[[Path, str], Iterator[Rows]]] = (
        gemm_rows,
        decode_rows,
        latent_rows,
        prefill_rows,
        all_reduce_rows,
        expert_rows,
    )
    for builder in builders:
        yield from builder(data, gpu)


def fit_gpu(data: Path, gpu: str) -> tuple[list[Fitted], list[tuple[Rows, Constants]]]:
    """Every constant that the tables identify, with the rows under the fitted constants."""
    shipped = constants = constants_for(find_gpu(GPUS[gpu]))
    found: list[Fitted] = []
    judged: list[tuple[Rows, Constants]] = []
    for rows in all_rows(data, gpu):
        constants, fitted = fit(rows, constants, shipped, GPUS[gpu])
        again = {(item.constant, item.key) for item in fitted}
        found = [item for item in found if (item.constant, item.key) not in again] + fitted
        judged.append((rows, constants))
    return found, judged


def fit_older(data: Path, gpu: str, found: Sequence[Fitted]) -> list[Fitted]:
    """What tables before `CHANGED` say of experts, where there are any; `found`: what the newest of all say."""
    constants = shipped = constants_for(find_gpu(GPUS[gpu]))
    for item in found:
        constants = _set(constants, item.constant, item.key, item.value)
    older: list[Fitted] = []
    if all(parse_version(name) < parse_version(CHANGED) for name in _releases(data, gpu, "moe")):
        return []
    for rows in expert_rows(data, gpu, before=CHANGED):
        # Other formats' older tables are of kernels that nobody chose: several times slower than models were served.
        if any(key in OLDER_FORMATS for _, key in rows.free):
            constants, fitted = fit(rows, constants, shipped, GPUS[gpu])
            older = [
                item for item in older if (item.constant, item.key) not in {(one.constant, one.key) for one in fitted}
            ]
            older += fitted
    return [
        item for item in older if item.key in OLDER_FORMATS or item.constant == "expert_activation_bytes_per_element"
    ]


def fit(rows: Rows, constants: Constants, shipped: Constants, gpu: str) -> tuple[Constants, list[Fitted]]:
    """`constants` with the free ones of these rows fitted, and what they are."""
    if not rows.free:
        return constants, []
    best = fit_constants(_thinned(rows), constants)
    splits = rows.shapes.iloc[:, 0]
    parts = [
        fit_constants(_thinned(part), best)
        for value in sorted(splits.unique())
        if len((part := rows.where(splits == value)).measured_s) > 5 * len(rows.free)
    ]
    error, old = (100 * float(np.median(np.abs(np.expm1(rows.log_errors(item))))) for item in (best, shipped))
    return best, [
        Fitted(
            gpu=gpu,
            constant=name,
            key=key,
            value=_get(best, name, key),
            low=min((_get(part, name, key) for part in parts), default=_get(best, name, key)),
            high=max((_get(part, name, key) for part in parts), default=_get(best, name, key)),
            rows=len(rows.measured_s),
            median_error_percent=error,
            shipped=_get(shipped, name, key),
            shipped_error_percent=old,
        )
        for name, key in rows.free
        if bounds_kernels(rows, best, name, key)
    ]


def fit_constants(rows: Rows, constants: Constants) -> Constants:
    """The free constants at the least robust sum of squared log errors, searched from every first guess."""
    ours = np.array([_get(constants, name, key) for name, key in rows.free])
    other = np.array([FIRST_GUESS.get(name, value) for (name, _), value in zip(rows.free, ours, strict=True)])

    def with_values(logs: FloatArray) -> Constants:
        changed = constants
        for (name, key), value in zip(rows.free, np.exp(logs), strict=True):
            changed = _set(changed, name, key, float(value))
        return changed

    def errors(logs: FloatArray) -> FloatArray:
        return rows.log_errors(with_values(logs))

    searches = [
        least_squares(
            errors,
            np.log(start),
            bounds=(np.log(start) - 3, np.log(start) + 3),
            loss="soft_l1",
            f_scale=LOSS_SCALE,
        )
        for start in {tuple(ours), tuple(other)}
        if min(start) > 0
    ]
    return with_values(min(searches, key=lambda found: float(found.cost)).x)


def bounds_kernels(rows: Rows, constants: Constants, name: str, key: str) -> bool:
    """Whether the times of these rows depend on the constant at all."""
    nudged = _set(constants, name, key, 0.99 * _get(constants, name, key))
    return bool(np.any(rows.term_s(nudged) != rows.term_s(constants)))


def gemm_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Matrix multiplies, all formats at once: they share the bandwidth's share and the kernel's start."""
    table = read_table(data, gpu, "gemm", "gemm")
    if table is None:
        return
    table = table[table["gemm_dtype"].isin(GEMM_FORMATS) & (table["m"] <= MOST_TOKENS)]
    narrowest = np.where(table["gemm_dtype"] == "bfloat16", SMALLEST_GEMM, WIDE_GEMM)
    table = table[(table["n"] >= narrowest) & (table["k"] >= SMALLEST_GEMM)].sort_values("gemm_dtype")
    formats = [(name, table[table["gemm_dtype"] == name]) for name in sorted(table["gemm_dtype"].unique())]
    ranks = {name: _rank(gpu, quantization=GEMM_FORMATS[name]) for name, _ in formats}

    def term_s(constants: Constants) -> FloatArray:
        return np.concatenate(
            [
                _sum(gemm(replace(ranks[name], constants=constants), _array(part, "m"), _matrices(part)))
                for name, part in formats
            ]
        )

    types = [ranks[name].scheme.gemm_dtype_on(ranks[name].gpu) for name, _ in formats]
    free: list[Free] = [(name, "") for name in ("gemm_bandwidth_share", "gemm_start_s", "gemm_overlap_power")]
    free += [("gemm_compute_share", dtype) for dtype in dict.fromkeys(types)]
    if {"fp8", "fp4"} & set(types):
        free.append(("quantized_gemm_start_factor", ""))
    shapes = pd.DataFrame(
        {
            "n": _powers(table["n"], 4),
            "format": table["gemm_dtype"],
            "m": _powers(table["m"], 4),
            "k": _powers(table["k"], 4),
        }
    )
    yield Rows("gemm", _array(table, "measured_s"), shapes, term_s, tuple(free))


def decode_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Decode attention without a window: contexts that no cache holds, then the shortest for the start."""
    table = read_table(data, gpu, "attention", "generation_attention")
    if table is None:
        return
    if "window_size" in table:
        table = table[table["window_size"] == 0]
    table = table[table["num_heads"] >= table["num_key_value_heads"]]
    context = table["batch_size"] * (table["step"] + 1)
    width = table["head_dim"] * table["num_key_value_heads"] * np.where(table["kv_cache_dtype"] == "fp8", 1, 2)
    for kv_dtype, bits in CACHE_BITS.items():
        of_type = table["kv_cache_dtype"] == kv_dtype
        large = table[of_type & (2 * width * context > FROM_MEMORY_BYTES)]
        if len(large):
            free = (("decode_attention_bandwidth_share", bits),)
            yield _attention_rows(f"decode attention, {bits}-bit cache", large, gpu, kv_dtype, free)
    small = table[(table["step"] < SHORT_CONTEXT) & (table["batch_size"] <= FEW_SEQUENCES)]
    small = small[small["kv_cache_dtype"] == "bfloat16"]
    yield _attention_rows("decode attention, start", small, gpu, "bfloat16", (("decode_attention_start_s", ""),))


def _attention_rows(name: str, table: pd.DataFrame, gpu: str, kv_dtype: str, free: tuple[Free, ...]) -> Rows:
    ranks = _attention_ranks(table, gpu, kv_dtype)
    context = _array(table, "batch_size") * (_array(table, "step") + 1)

    def term_s(constants: Constants) -> FloatArray:
        costs = {shape: attention(replace(rank, constants=constants)) for shape, rank in ranks.items()}
        each = [costs[shape] for shape in _shapes(table)]
        return np.array([cost.start_s for cost in each]) + np.array([cost.context_s for cost in each]) * context

    shapes = pd.DataFrame(
        {
            "head dim": table["head_dim"],
            "kv heads": table["num_key_value_heads"],
            "query heads per kv head": table["num_heads"] // table["num_key_value_heads"],
            "sequences": _powers(table["batch_size"], 4),
            "context": _powers(table["step"] + 1, 4),
        }
    )
    return Rows(name, _array(table, "measured_s"), shapes, term_s, free)


def latent_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """What 16-bit latent attention takes per token of context: differences, as the module's projections drop out."""
    table = read_table(data, gpu, "mla", "mla_generation_module")
    if table is None:
        return
    table = table[(table["kv_cache_dtype"] == "bfloat16") & (table["gemm_type"] == "bfloat16")]
    table = table.sort_values(["num_heads", "batch_size", "step"])
    before = table.groupby(["num_heads", "batch_size"])[["measured_s", "step"]].shift()
    table = table.assign(
        measured_s=table["measured_s"] - before["measured_s"],
        context=table["batch_size"] * (table["step"] - before["step"]),
    )
    arch = load_model("deepseek-v3")
    table = table[(table["context"] * 576 * 2 > FROM_MEMORY_BYTES / 2) & (table["measured_s"] > 0)]
    # Few heads are bound by the bandwidth, whose share other attention has given; many by compute.
    for name, heads, free in (
        ("latent attention, few heads", range(1, 33), ()),
        ("latent attention, many heads", range(128, 129), (("decode_attention_compute_share", ""),)),
    ):
        part = table[table["num_heads"].isin(heads)]
        ranks = {
            count: _rank(gpu, replace(arch, num_attention_heads=count, num_key_value_heads=count))
            for count in part["num_heads"].unique()
        }
        if len(part):
            yield _per_context(name, part, ranks, free)


def _per_context(name: str, table: pd.DataFrame, ranks: Mapping[int, Rank], free: tuple[Free, ...]) -> Rows:
    def term_s(constants: Constants) -> FloatArray:
        costs = {heads: attention(replace(rank, constants=constants)).context_s for heads, rank in ranks.items()}
        return table["num_heads"].map(costs).to_numpy(dtype=np.float64) * _array(table, "context")

    shapes = pd.DataFrame({"heads": table["num_heads"], "sequences": table["batch_size"]})
    return Rows(name, _array(table, "measured_s"), shapes, term_s, free)


def prefill_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Prefill attention of whole prompts without a window, per head dim."""
    table = read_table(data, gpu, "attention", "context_attention")
    if table is None:
        return
    if "window_size" in table:
        table = table[table["window_size"] == 0]
    table = table[(table["kv_cache_dtype"] == "bfloat16") & (table["isl"] >= SHORTEST_PREFILL)]
    table = table[table["measured_s"] >= SHORTEST_PREFILL_S]
    table = table[(table["num_heads"] >= 4) & (table["num_heads"] > table["num_key_value_heads"])]
    for head_dim in (128, 64, 256):  # the first's extra positions stand for all
        part = table[table["head_dim"] == head_dim]
        free: tuple[Free, ...] = (("prefill_attention_compute_share", str(head_dim)),)
        if head_dim == 128:
            free += (("prefill_attention_extra_positions", ""),)
        if len(part):
            yield _prefill_rows(part, gpu, free)


def _prefill_rows(table: pd.DataFrame, gpu: str, free: tuple[Free, ...]) -> Rows:
    ranks = _attention_ranks(table, gpu, "bfloat16")
    tokens = _array(table, "batch_size") * _array(table, "isl")
    work = tokens * (_array(table, "isl") + 1) / 2

    def term_s(constants: Constants) -> FloatArray:
        costs = {shape: attention(replace(rank, constants=constants)) for shape, rank in ranks.items()}
        each = [costs[shape] for shape in _shapes(table)]
        by_token = np.array([cost.prefill_token_s for cost in each])
        return np.array([cost.prefill_s for cost in each]) * work + by_token * tokens

    shapes = pd.DataFrame(
        {"tokens per prompt": table["isl"], "query heads": table["num_heads"], "prompts": table["batch_size"]}
    )
    return Rows(f"prefill attention, head dim {free[0][1]}", _array(table, "measured_s"), shapes, term_s, free)


def all_reduce_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """All-reduces: in CUDA graphs up to what a graph holds, launched beyond."""
    table = read_table(data, gpu, "comm", "custom_allreduce")
    if table is None:
        return
    in_graph = table["message_size"] <= GRAPH_ELEMENTS
    table = table[(table["backend"].str.endswith("graph") == in_graph) & table["message_size"].between(*MESSAGES)]
    rank = _rank(gpu)
    counts = sorted(table["num_gpus"].unique())
    table = table.sort_values(["num_gpus", "message_size"])

    def term_s(constants: Constants) -> FloatArray:
        ours = replace(rank, constants=constants)
        return np.concatenate(
            [
                all_reduce_s(ours, _array(table[table["num_gpus"] == count], "message_size"), 1, ranks=int(count))
                for count in counts
            ]
        )

    link = rank.gpu.interconnect
    shapes = pd.DataFrame({"ranks": table["num_gpus"], "elements": _powers(table["message_size"], 8)})
    free = (("all_reduce_start_s", link), ("all_reduce_link_share", link), ("all_reduce_start_growth", ""))
    yield Rows("all-reduce", _array(table, "measured_s"), shapes, term_s, free)


def expert_rows(data: Path, gpu: str, *, before: str | None = None) -> Iterator[Rows]:
    """Routed experts split by tensor parallelism.

    Bandwidth and starts where tokens are dealt evenly, to one token's experts or to all: there it is known which are
    read. Compute, and how many are read, where tokens are dealt by a power law, as routers do.
    """
    table = read_table(data, gpu, "moe", "moe", before=before)
    if table is None:
        return
    table = table[(table["moe_ep_size"] == 1) & (table["num_tokens"] <= MOST_TOKENS)]
    table = table[(table["num_experts"] >= FEWEST_EXPERTS) & (table["moe_tp_size"] <= MOST_RANKS)]
    width = table["inter_size"] / table["moe_tp_size"]
    table = table[(width >= NARROWEST_EXPERT) & (width % 1 == 0)]
    table = table[~table["kernel_source"].str.contains(OTHER_ACTIVATION)]
    known = {
        form: next((word for word in words if (table["moe_dtype"] == word).any()), None)
        for form, words in EXPERT_FORMATS.items()
    }
    each = table["num_tokens"] * table["topk"] / table["num_experts"]
    clear = table[(table["num_tokens"] == 1) | (each <= APART_TOKENS) | (each >= EVERY_EXPERT_TOKENS)]
    # Older releases' tables have no even deal; with many tokens a power law reaches every expert as well.
    evenly = "balanced" if (table["distribution"] == "balanced").any() else DEALT
    even = clear["distribution"] == evenly
    for form, word in known.items():
        part = clear[even & (clear["moe_dtype"] == word)]
        key = CONSTANT_KEYS.get(form, form)
        shares: tuple[Free, ...] = (("expert_compute_share", key), ("expert_activation_bytes_per_element", key))
        own: tuple[Free, ...] = (*shares, ("expert_start_s", key))
        if form == "bf16":
            own += (("expert_bandwidth_share", ""),)
        if len(part):
            yield _expert_rows(f"experts, {form}", part, gpu, form, own)
        many = table[(table["distribution"] == DEALT) & (table["moe_dtype"] == word) & (each >= EVERY_EXPERT_TOKENS)]
        if len(many):
            yield _expert_rows(f"experts, {form}, dealt by a power law", many, gpu, form, shares)
    dealt = table[(table["distribution"] == DEALT) & (table["moe_dtype"] == known["bf16"])]
    dealt = dealt[(dealt["num_tokens"] > 1) & (dealt["num_tokens"] * dealt["topk"] < 4 * dealt["num_experts"])]
    if len(dealt):
        yield _expert_rows("experts, chosen", dealt, gpu, "bf16", (("distinct_expert_exponent", ""),))


def _expert_rows(name: str, table: pd.DataFrame, gpu: str, form: str, free: tuple[Free, ...]) -> Rows:
    keys = ["hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size"]
    table = table.sort_values(keys)
    groups = list(table.groupby(keys))

    def term_s(constants: Constants) -> FloatArray:
        return np.concatenate([_expert_s(gpu, form, constants, shape, part) for shape, part in groups])

    shapes = pd.DataFrame(
        {
            "TP": table["moe_tp_size"],
            "width": _powers(table["inter_size"] / table["moe_tp_size"], 2),
            "experts": table["num_experts"],
            "tokens": _powers(table["num_tokens"], 4),
            "model": table["hidden_size"].astype(str) + "×" + table["inter_size"].astype(str),
            "kernel": table["kernel_source"].str.removeprefix("vllm_"),
        }
    )
    return Rows(name, _array(table, "measured_s"), shapes, term_s, free)


def _expert_s(gpu: str, form: str, constants: Constants, shape: Any, part: pd.DataFrame) -> FloatArray:
    hidden, inter, topk, count, ways = (int(number) for number in shape)
    arch = replace(
        load_model("qwen3-30b-a3b"),
        hidden_size=hidden,
        moe_intermediate_size=inter,
        num_experts_per_tok=topk,
        num_experts=count,
    )
    rank = replace(_rank(gpu, arch, quantization=form), constants=constants)
    matrices = [(2 * inter // ways, hidden), (hidden, inter // ways)]
    tensors = [Tensor("experts", rows, cols, count=count, quantizable=True) for rows, cols in matrices]
    return _sum(experts(rank, _array(part, "num_tokens"), tensors))


def breakdown(rows: Rows, constants: Constants) -> dict[str, dict[str, tuple[float, int]]]:
    """Median signed error of the term in percent, with the number of rows, by every property of the shapes."""
    errors = pd.Series(100 * np.expm1(rows.log_errors(constants)), index=rows.shapes.index)
    return {
        str(column): {str(value): (float(part.median()), len(part)) for value, part in errors.groupby(values)}
        for column, values in rows.shapes.items()
    }


def _rank(gpu: str, arch: Architecture | None = None, *, quantization: str = "none", kv_dtype: str = "auto") -> Rank:
    """One GPU alone with this shape; sizes that no term looks at are 1."""
    arch = arch or load_model("llama-3.1-8b")
    deployment = Deployment(
        architecture=arch,
        gpu=find_gpu(GPUS[gpu]),
        max_num_batched_tokens=1,
        max_num_seqs=1,
        kv_cache_dtype="fp8" if kv_dtype == "fp8" else "auto",
    )
    scheme = find_quantization("none" if quantization == "bf16" else quantization)
    own = constants_for(deployment.gpu)
    return Rank(deployment=deployment, scheme=scheme, parallelism=Parallelism(), constants=own)


def _attention_ranks(table: pd.DataFrame, gpu: str, kv_dtype: str) -> dict[tuple[int, int, int], Rank]:
    """One rank for every head layout in the table."""
    base = load_model("llama-3.1-8b")
    return {
        (heads, kv_heads, head_dim): _rank(
            gpu,
            replace(base, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim),
            kv_dtype=kv_dtype,
        )
        for heads, kv_heads, head_dim in set(_shapes(table))
    }


def _shapes(table: pd.DataFrame) -> list[tuple[int, int, int]]:
    columns = (table["num_heads"], table["num_key_value_heads"], table["head_dim"])
    return list(zip(*(map(int, column) for column in columns), strict=True))


def _matrices(table: pd.DataFrame) -> Tensor:
    """All matrices of the table in one: the terms are element-wise in rows and columns."""
    rows, cols = (cast(int, _array(table, name)) for name in ("n", "k"))
    return Tensor("mlp", rows, cols, quantizable=True)


def _array(table: pd.DataFrame, column: str) -> FloatArray:
    return table[column].to_numpy(dtype=np.float64)


def _sum(causes: Mapping[str, FloatArray]) -> FloatArray:
    return cast(FloatArray, np.sum(list(causes.values()), axis=0))


def _powers(values: Any, base: int) -> Any:
    """The largest power of `base` that each value reaches."""
    steps = np.floor(np.log(np.asarray(values, dtype=np.float64)) / np.log(base) + 1e-9)
    return pd.Series(float(base) ** steps, index=values.index)


def _thinned(rows: Rows) -> Rows:
    """At most `MOST_ROWS`, the same on every run."""
    if len(rows.measured_s) <= MOST_ROWS:
        return rows
    chosen = np.random.default_rng(1).permutation(len(rows.measured_s)) < MOST_ROWS
    return rows.where(chosen)


def _get(constants: Constants, name: str, key: str) -> float:
    value = getattr(constants, name)
    return float(value[key] if key else value)


def _set(constants: Constants, name: str, key: str, value: float) -> Constants:
    changes: dict[str, Any] = {name: {**getattr(constants, name), key: value} if key else value}
    return replace(constants, **changes)


def prior_text(data: Path, gpu: str, fitted: Sequence[Fitted], older: Sequence[Fitted]) -> str:
    """The fitted constants as a file of `simulator/latency/priors`."""
    lines = [
        f"# {GPUS[gpu]}, written by benchmarks/kernel_tables.py from vLLM's kernel times",
        "# (aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0). What is not here is in general.toml.",
        "",
        "[priors]",
        *_entries(gpu, fitted),
    ]
    if older:
        lines += ["", f'[before."{CHANGED}"] # other kernels', *_entries(gpu, older)]
    return "\n".join(lines) + "\n"


def _entries(gpu: str, fitted: Sequence[Fitted]) -> Iterator[str]:
    starts = [item for item in fitted if item.constant.endswith("_start_s")]
    cached = {(item.constant, item.key) for item in starts if item.value < SMALLEST_KERNEL_S}
    if ("gemm_start_s", "") in cached:
        cached.add(("quantized_gemm_start_factor", ""))
    fitted = [item for item in fitted if item.rows >= FEWEST_ROWS and (item.constant, item.key) not in cached]
    for name in dict.fromkeys(item.constant for item in fitted):
        found = {item.key: item for item in fitted if item.constant == name}
        values = {key: f"{item.value:.3g}" for key, item in found.items()}
        notes = [
            f"{key + ': ' if key else ''}{item.rows} rows, median error {item.median_error_percent:.0f} %"
            for key, item in found.items()
        ]
        for key, other in ALIKE.get(name, {}).items():
            if key not in values and other in values:
                values[key] = values[other]
                notes.append(f"{key} as {other}")
        text = ", ".join(f"{key} = {value}" for key, value in values.items())
        value = values.get("", f"{{ {text} }}")
        yield f'{name} = {{ value = {value}, source = "kernel tables of {GPUS[gpu]}: {"; ".join(notes)}" }}'
