"""`headcount memory`: the per-GPU waterfall, whether it fits, what the KV cache holds."""

from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from headcount.cli.option_types import FilePath, IntegerList, TokenCount, WholeNumber
from headcount.cli.options import deployment_options, engine_options, output_options

MAX_USERS = 1_000_000


@click.command("memory")
@deployment_options
@click.option(
    "--pipeline-parallel-size", "-pp", type=WholeNumber(1), default=1, show_default=True, help="Pipeline stages."
)
@click.option(
    "--enable-prefix-caching/--no-enable-prefix-caching",
    default=True,
    show_default=True,
    help="Of account where layers keep states: with it a request holds more of them.",
)
@click.option(
    "--mean-context",
    type=TokenCount(),
    help="Tokens of a typical conversation.  [default: mean prompt with answer of the chat preset]",
)
@click.option(
    "--users",
    type=IntegerList("numbers of users", MAX_USERS),
    default="1,10,100,1000",
    show_default=True,
    help="Say how many tokens each of so many users can hold at once.",
)
@click.option(
    "--compare", is_flag=True, help="A table over tensor-parallel sizes, weight formats, KV-cache formats not given."
)
@click.option("--out", type=FilePath(), help="Also draw it, to a file that ends in .svg or .html.")
@output_options
def command(**values: Any) -> int:
    """Whether a model fits on a GPU under vLLM, where the memory goes, how many conversations its KV blocks hold.

    Exit code 2 where it does not fit, with what is missing and what to change.
    """
    from headcount.strict import check_architecture  # noqa: PLC0415  imported once the command runs
    from kvcache.models.catalog import find_gpu, load_model  # noqa: PLC0415

    architecture, gpu = load_model(values["model"]), find_gpu(values["gpu"])
    check_architecture(architecture, values["strict"])
    _check_out(values["out"])
    if values["compare"]:
        _check_users(values["out"])
    settings = engine_options(values).memory_settings(values["tensor_parallel_size"] or 1)
    settings["pipeline_parallel_size"] = values["pipeline_parallel_size"]
    rows = _candidates(architecture, gpu, values, settings) if values["compare"] else ()
    answer = _answer(architecture, gpu, values, settings)
    _write_out(values["out"], answer, rows)
    if values["compare"]:
        return _show_comparison(answer, rows, values)
    _show(answer, values, _beside_log(architecture, gpu, values["startup_log"], answer.budget, settings))
    return _refuse_unfit(architecture, gpu, settings, answer.budget)


def _check_out(path: Path | None) -> None:
    if path is not None:
        from headcount.report.memory_page import check_out  # noqa: PLC0415  an optional extra, slow to load

        check_out(path)


def _check_users(out: Path | None) -> None:
    """Raise ValueError where a comparison would leave --users unanswered: only its page says what users hold."""
    source = click.get_current_context().get_parameter_source("users")
    if source is not ParameterSource.DEFAULT and (out is None or out.suffix.lower() != ".html"):
        raise ValueError(
            "--users: the table of --compare does not say what each user can hold; leave out one of the two, or say "
            "with --mean-context how long a conversation is"
        )


def _write_out(path: Path | None, answer: Any, rows: Any) -> None:
    if path is not None:
        from headcount.report.memory_page import write_memory  # noqa: PLC0415  an optional extra, slow to load

        write_memory(path, answer, rows)


def _answer(architecture: Any, gpu: Any, values: dict[str, Any], settings: dict[str, Any]) -> Any:
    from headcount.text.memory_answer import MemoryAnswer  # noqa: PLC0415  imported once the command runs
    from kvcache.memory.budget import memory_budget  # noqa: PLC0415
    from kvcache.memory.remedies import remedies  # noqa: PLC0415

    budget = memory_budget(architecture, gpu, **settings)
    return MemoryAnswer(
        budget=budget,
        users=values["users"],
        given_context_tokens=values["mean_context"],
        remedies=() if budget.fits else remedies(architecture, gpu, budget, settings),
        assumed=architecture.assumptions,
    )


def _candidates(architecture: Any, gpu: Any, values: dict[str, Any], settings: dict[str, Any]) -> Any:
    """Every way to run the model that the options leave open."""
    from kvcache.memory.comparison import KV_CACHE_DTYPES, TENSOR_PARALLEL_SIZES, compare  # noqa: PLC0415

    if settings["num_gpu_blocks_override"] is not None:
        raise ValueError(
            "--compare works out each row's KV blocks; leave out --num-gpu-blocks-override and --startup-log"
        )
    varied = ("tensor_parallel_size", "quantization", "kv_cache_dtype")
    size, quantization, kv_cache_dtype = (values[name] for name in varied)
    return compare(
        architecture,
        gpu,
        tensor_parallel_sizes=TENSOR_PARALLEL_SIZES if size is None else (size,),
        quantizations=None if quantization is None else (quantization,),
        kv_cache_dtypes=KV_CACHE_DTYPES if kv_cache_dtype == "auto" else (kv_cache_dtype,),
        **{name: value for name, value in settings.items() if name not in varied},
    )


def _show(answer: Any, values: dict[str, Any], terms: list[tuple[str, float | None, float]]) -> None:
    if values["as_json"]:
        from headcount.cli.json_output import print_json  # noqa: PLC0415  one of the two is imported

        print_json(answer.to_json() | ({"startup_log": _terms_json(terms)} if terms else {}))
        return
    from headcount.text.text import log_text, memory_text  # noqa: PLC0415

    memory_text(answer)
    if terms:
        log_text(values["startup_log"], terms)


def _show_comparison(answer: Any, rows: Any, values: dict[str, Any]) -> int:
    from headcount.text.memory_comparison import comparison_json, comparison_text  # noqa: PLC0415  once the command runs

    if values["as_json"]:
        from headcount.cli.json_output import print_json  # noqa: PLC0415

        print_json(comparison_json(answer, rows))
    else:
        comparison_text(answer, rows)
    if not any(row.fits for row in rows):
        raise ValueError(f"{answer.budget.model} fits on {answer.budget.gpu} in none of these ways; take a larger GPU")
    return 0


def _refuse_unfit(architecture: Any, gpu: Any, settings: dict[str, Any], budget: Any) -> int:
    """Raise what vLLM's refusal means where it would not start."""
    from kvcache.memory.remedies import require_fit  # noqa: PLC0415  imported once the command runs

    if not budget.fits:
        require_fit(architecture, gpu, **settings)
    return 0


def _beside_log(
    architecture: Any, gpu: Any, log: Any, budget: Any, settings: dict[str, Any]
) -> list[tuple[str, float | None, float]]:
    """What the server logged beside what would have been predicted: name, logged, modelled; GiB per GPU, or blocks."""
    from kvcache.memory.budget import memory_budget  # noqa: PLC0415  imported once the command runs

    if log is None:
        return []
    modelled, gib = memory_budget(architecture, gpu, **{**settings, "num_gpu_blocks_override": None}), 2**30
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
