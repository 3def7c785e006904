"""What the answer rests on, each figure with its source."""

from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import join, paragraph, table
from headcount.text.units import GIB
from headcount.text.words import kv_cache_text, sentence, slo_text, weights_text
from kvcache.gpus.gpu import GPU
from simulator.fleet.router import router_name

TITLE = "Assumptions and sources"
ORDER = 75
COLUMNS = ("what", "value", "source")


def render(answer: CapacityAnswer) -> str:
    parts = [table(("setting", "value"), _settings(answer), caption="What was simulated", layout="text")]
    parts.append(table(COLUMNS, _gpu_rows(answer.question.gpu), caption="The GPU", layout="text"))
    if answer.plans:
        said = [note.text for note in answer.notes if note.code == "step-time-error"]
        if not answer.plans[-1].latency.is_given:
            said.append("for the interval of users every step is longer or shorter by the share of TPOT")
            said.append("± beside a constant is one standard deviation of its logarithm")
        parts.append(paragraph(" ".join(f"{sentence(text)}." for text in said)))
        parts.append(_assumptions(answer))
    return join(*parts)


def _settings(answer: CapacityAnswer) -> list[tuple[str, str]]:
    question, plans = answer.question, answer.plans
    asked = question.args.tensor_parallel_size
    rows = [
        ("model", question.architecture.name),
        ("GPU", question.gpu.name),
        ("vLLM rules", f"release {question.args.vllm_version}"),
        ("SLO", slo_text(question.slo)),
        ("router", router_name(question.router)),
        ("tensor parallel size", "every size that fits; most users wins" if asked is None else str(asked)),
        ("latency model", question.args.latency_model),
        ("prefix caching", "on" if question.args.enable_prefix_caching else "off"),
        ("precision of the capacity", f"±{question.precision:.1%}"),
    ]
    if not plans:
        return rows
    budget = plans[-1].budget
    return [
        *rows,
        ("asynchronous scheduling", "on" if plans[-1].engine.async_scheduling else "off"),
        ("weights", weights_text(plans[-1])),
        ("KV cache", f"{kv_cache_text(plans[-1])}, blocks of {budget.block_size} tokens"),
        ("max_model_len", f"{budget.max_model_len:,}"),
        ("max_num_seqs", f"{budget.max_num_seqs:,}"),
        ("max_num_batched_tokens", f"{budget.max_num_batched_tokens:,}"),
        ("gpu_memory_utilization", f"{budget.gpu_memory_utilization:g}"),
    ]


def _gpu_rows(gpu: GPU) -> list[tuple[str, str, str]]:
    price = gpu.usd_per_hour
    flops = ", ".join(f"{name} {value / 1e12:,.4g}" for name, value in gpu.flops_per_s.items())
    values = {
        "memory_bytes": ("memory", f"{gpu.memory_bytes / GIB:.2f} GiB"),
        "memory_bandwidth_bytes_per_s": ("memory bandwidth", f"{gpu.memory_bandwidth_bytes_per_s / 1e12:.3g} TB/s"),
        "flops_per_s": ("dense Tflop/s by type", flops),
        "interconnect_bytes_per_s": (
            f"interconnect ({gpu.interconnect})", f"{gpu.interconnect_bytes_per_s / 1e9:,.4g} GB/s in one direction"
        ),
        "usd_per_hour": ("price", "none known" if price is None else f"${price:,.2f} per GPU and hour"),
    }  # fmt: skip
    return [(name, value, gpu.source.get(field, "")) for field, (name, value) in values.items()]


def _assumptions(answer: CapacityAnswer) -> str:
    """One row per assumption; where layouts differ, each says which it belongs to."""
    sizes: dict[tuple[str, str, str], list[int]] = {}
    for plan in answer.plans:
        for assumption in plan.assumptions:
            sizes.setdefault(assumption, []).append(plan.tensor_parallel_size)
    every = len(answer.plans)
    rows = [
        (name if len(of) == every else f"{name} (TP {', '.join(map(str, of))})", value, source)
        for (name, value, source), of in sizes.items()
    ]
    return table(COLUMNS, _together(rows), caption="Memory and step times", layout="text")


def _together(rows: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Rows of one name next to each other, in the order of first mention."""
    names = list(dict.fromkeys(name.partition(" (TP ")[0] for name, _, _ in rows))
    return sorted(rows, key=lambda row: names.index(row[0].partition(" (TP ")[0]))
