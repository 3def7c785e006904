"""`headcount memory`: the per-GPU waterfall."""

from typing import Any

import click

from headcount.option_types import TokenCount
from headcount.options import deployment_options, engine_options, output_options


@click.command("memory")
@deployment_options
@click.option(
    "--pipeline-parallel-size", "-pp", type=TokenCount(), default=1, show_default=True, help="Pipeline stages."
)
@output_options
def command(**values: Any) -> int:
    """Where a GPU's memory goes under vLLM, and how many KV blocks remain."""
    from headcount.json_output import print_json  # noqa: PLC0415  imported once the command runs
    from headcount.text import log_text, memory_text  # noqa: PLC0415
    from kvcache.catalog import find_gpu, load_model  # noqa: PLC0415
    from kvcache.memory import memory_budget, require_fit  # noqa: PLC0415

    architecture, gpu = load_model(values["model"]), find_gpu(values["gpu"])
    settings = engine_options(values).memory_settings(values["tensor_parallel_size"] or 1)
    settings["pipeline_parallel_size"] = values["pipeline_parallel_size"]
    budget = memory_budget(architecture, gpu, **settings)
    log = values["startup_log"]
    terms = [] if log is None else _beside_log(log, budget, memory_budget(architecture, gpu, **_modelled(settings)))
    if values["as_json"]:
        print_json(memory_json(budget) | ({"startup_log": _terms_json(terms)} if terms else {}))
    else:
        memory_text(budget, assumptions=budget.assumptions, verdict=_verdict(budget))
        if terms:
            log_text(log, terms)
    if not budget.fits:
        require_fit(architecture, gpu, **settings)
    return 0


def memory_json(budget: Any) -> dict[str, Any]:
    """The keys of `headcount memory --json`."""
    names = (
        "model", "gpu", "tensor_parallel_size", "pipeline_parallel_size", "quantization", "kv_cache_dtype",
        "gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "vllm_version", "fits",
        "missing_bytes", "total_bytes", "requested_bytes", "weights_bytes", "activation_peak_bytes",
        "non_torch_bytes", "cuda_graph_bytes", "available_kv_bytes", "num_gpu_blocks", "block_size",
        "kv_cache_tokens", "max_concurrency", "kv_bytes_per_token", "num_gpu_blocks_low", "num_gpu_blocks_high",
    )  # fmt: skip
    found = {"schema_version": 1, **{name: getattr(budget, name) for name in names}}
    found["assumptions"] = [dict(zip(("name", "value", "source"), item, strict=True)) for item in budget.assumptions]
    return found


def _modelled(settings: dict[str, Any]) -> dict[str, Any]:
    return {**settings, "num_gpu_blocks_override": None}


def _beside_log(log: Any, budget: Any, modelled: Any) -> list[tuple[str, float | None, float]]:
    """What the server logged beside what would have been predicted: name, logged, modelled; GiB per GPU, or blocks."""
    gib = 2**30
    return [
        ("weights", log.weights_gib, modelled.weights_bytes / gib),
        ("activation peak", log.activation_peak_gib, modelled.activation_peak_bytes / gib),
        ("non-torch", log.non_torch_gib, modelled.non_torch_bytes / gib),
        ("KV cache", log.available_kv_gib, modelled.available_kv_bytes / gib),
        ("KV blocks", budget.num_gpu_blocks, modelled.num_gpu_blocks),
    ]


def _terms_json(terms: list[tuple[str, float | None, float]]) -> dict[str, Any]:
    keys = ("weights_gib", "activation_peak_gib", "non_torch_gib", "available_kv_gib", "num_gpu_blocks")
    return {
        key: {"logged": logged, "modelled": modelled} for key, (_, logged, modelled) in zip(keys, terms, strict=True)
    }


def _verdict(budget: Any) -> str:
    if not budget.fits:
        return "vLLM would not start."
    return (
        f"{budget.num_gpu_blocks:,} KV blocks of {budget.block_size} tokens: {budget.kv_cache_tokens:,} tokens at "
        f"{budget.kv_bytes_per_token / 1024:,.1f} KiB each\n"
        f"{budget.max_concurrency:.2f} requests of the full {budget.max_model_len:,} tokens at once "
        "(vLLM's 'Maximum concurrency'); shorter ones fit in proportion"
    )
