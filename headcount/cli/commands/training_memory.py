"""`headcount training-memory`: what a rank holds in training."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from headcount.cli.option_types import Number, TokenCount, WholeNumber
from headcount.cli.options import output_options
from kvcache.training.plan import TrainingPlan
from kvcache.training.states import LORA_TARGETS, OPTIMIZERS, PRECISIONS

if TYPE_CHECKING:
    from kvcache.training.budget import TrainingBudget

F = TypeVar("F", bound=Callable[..., Any])
Changes = tuple[tuple[str, Any], ...]  # (option, value) of what changes together; no value for a flag
DEFAULT = TrainingPlan()
SHORT = {"zero_stage": "--zero", "sequence_length": "--seq-len"}
PARTS = (
    ("weights", "weights_bytes"),
    ("gradients", "gradients_bytes"),
    ("optimizer states", "optimizer_bytes"),
    ("activations", "activations_bytes"),
    ("recomputed activations", "recomputed_bytes"),
    ("gathered weights", "gathered_bytes"),
    ("allowance", "allowance_bytes"),
)
PASSING = ("recomputed_bytes", "gathered_bytes", "allowance_bytes")  # not shown where there are none


def _spelling(field: str) -> str:
    return SHORT.get(field, f"--{field.replace('_', '-')}")


def _option(field: str, *names: str, says: str, kind: Any = None) -> Callable[[F], F]:
    """An option that sets a field of the plan, under the plan's default."""
    option, default = _spelling(field), getattr(DEFAULT, field)
    if isinstance(default, bool):
        return click.option(f"{option}/--no-{option[2:]}", field, default=default, show_default=True, help=says)
    kind = kind or WholeNumber(1)
    return click.option(option, *names, field, type=kind, default=default, show_default=True, help=says)


@click.command("training-memory")
@click.option("--model", required=True, help="Model name as on Hugging Face, an alias, or a path to a config.json.")
@click.option("--gpu", required=True, help="GPU name, such as h100-sxm; see 'headcount gpus'.")
@_option("tensor_parallel_size", "-tp", says="GPUs that share each layer.")
@_option("pipeline_parallel_size", "-pp", says="Pipeline stages.")
@_option("data_parallel_size", "-dp", says="Copies that split the batch.")
@_option("expert_parallel_size", "-ep", says="Data-parallel ranks that share the experts out.")
@_option("virtual_pipeline_stages", says="Chunks of layers per pipeline stage: the interleaved schedule.")
@_option("zero_stage", kind=WholeNumber(0), says="What data-parallel ranks shard: ZeRO 0–3. 3 is FSDP.")
@_option("precision", kind=str, says=f"{', '.join(PRECISIONS)}.")
@_option("fp32_gradients", says="Gradients accumulated in fp32, as Megatron does.")
@_option("optimizer", kind=str, says=f"{', '.join(OPTIMIZERS)}.")
@_option("micro_batch_size", says="Sequences per forward pass of a rank.")
@_option("sequence_length", kind=TokenCount(), says="Tokens per sequence.")
@_option("gradient_accumulation", says="Micro-batches per optimizer step; they fill the pipeline.")
@_option("recompute", kind=str, says="Activations computed again in backward: none, selective, full.")
@_option("sequence_parallel", says="Tensor-parallel ranks split norms and dropout by tokens.")
@_option("flash_attention", says="Attention scores are never stored.")
@_option("fused_kernels", says="Fused norms, SwiGLU, softmax; without, as transformers runs Llama eagerly.")
@_option("dropout", says="The model is trained with dropout.")
@_option("lora_rank", kind=WholeNumber(0), says="Rank of the trained adapters; 0 trains every weight.")
@_option("lora_targets", kind=str, says=f"{', '.join(LORA_TARGETS)}.")
@_option("qlora", says="The frozen weights are packed to NF4; needs --lora-rank.")
@_option("allowance", kind=Number("a share from 0 to below 1, such as 0.1"), says="Share of GPU memory left over.")
@click.option(
    "--num-gpus",
    type=WholeNumber(1),
    help="Search the smallest cluster of at most so many GPUs; of -tp, -pp, -dp, -ep, --zero those given stay.",
)
@output_options
def command(**values: Any) -> int:
    """Where a GPU's memory goes in training, whether it fits, and the smallest cluster that holds it."""
    from headcount.cli.json_output import print_json  # noqa: PLC0415  imported once the command runs
    from kvcache.errors import DoesNotFitError  # noqa: PLC0415
    from kvcache.models.catalog import find_gpu, load_model  # noqa: PLC0415
    from kvcache.training.budget import training_budget  # noqa: PLC0415
    from kvcache.training.cluster import LARGEST_CLUSTER, SEARCHED, remedies, smallest_cluster  # noqa: PLC0415

    arch, gpu = load_model(values["model"]), find_gpu(values["gpu"])
    asked = values["num_gpus"]
    if asked and not _was_given("data_parallel_size"):
        values["data_parallel_size"] = values["expert_parallel_size"]  # where the search starts
    plan = TrainingPlan(**{name: value for name, value in values.items() if name in vars(DEFAULT)})
    budget = training_budget(arch, gpu, plan)
    most = asked or LARGEST_CLUSTER
    cluster = None
    if asked or not budget.fits:
        fixed = frozenset(name for name in SEARCHED if asked and _was_given(name))
        cluster = smallest_cluster(arch, gpu, plan, max_gpus=most, fixed=fixed)
    if asked and cluster is not None:
        budget = cluster
    changes = () if budget.fits else tuple(_changes(plan, other) for other in remedies(arch, gpu, plan))
    if values["as_json"]:
        print_json(training_json(budget, cluster, changes))
    else:
        _print(budget)
    if not budget.fits:
        raise DoesNotFitError(_shortfall(budget, cluster, changes, most))
    return 0


def training_json(
    budget: "TrainingBudget", cluster: "TrainingBudget | None", changes: Sequence[Changes]
) -> dict[str, Any]:
    """The keys of `headcount training-memory --json`; `*_bytes` are per GPU."""
    found: dict[str, Any] = {"schema_version": 1, "model": budget.model, "gpu": budget.gpu, **_layout_json(budget)}
    found |= vars(budget.plan)
    names = (
        "num_parameters", "num_trainable_parameters", "stage", "in_flight_micro_batches", "fits", "missing_bytes",
        *(name for _, name in PARTS), "total_bytes", "gpu_memory_bytes",
    )  # fmt: skip
    found |= {name: getattr(budget, name) for name in names}
    found["global_batch_size"] = budget.plan.global_batch_size
    found["changes_that_fit"] = [dict(change) for change in changes]
    found["smallest_cluster"] = None if cluster is None else _layout_json(cluster)
    found["assumptions"] = [dict(zip(("name", "value", "source"), item, strict=True)) for item in budget.assumptions]
    return found


def _layout_json(budget: "TrainingBudget") -> dict[str, Any]:
    names = (
        "num_gpus", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size",
        "zero_stage",
    )  # fmt: skip
    return {name: getattr(budget.plan, name) for name in names} | {"total_bytes": budget.total_bytes}


def _print(budget: "TrainingBudget") -> None:
    """The waterfall of one rank, the verdict, what it rests on."""
    from rich.markup import escape  # noqa: PLC0415  imported once the command runs

    from headcount.text.tables import print_table  # noqa: PLC0415
    from headcount.text.text import bar_width, console, counted, gib, table  # noqa: PLC0415

    plan, out = budget.plan, console()
    out.print(
        f"[bold]{escape(budget.model)}[/] trained on {counted(plan.num_gpus)} ({budget.gpu}): "
        f"{plan.layout}, {plan.precision}, {plan.optimizer}"
    )
    trained, beside = f"{budget.num_trainable_parameters:,}", f"{budget.num_parameters:,}"
    out.print(f"{trained} adapter parameters beside {beside} frozen ones" if plan.lora_rank else f"{beside} parameters")
    out.print(f"{plan.global_batch_size:,} × {plan.sequence_length:,} tokens per optimizer step\n")
    made = table("per GPU", "GiB", "")
    made.columns[2].justify = "left"
    longest = bar_width(out, [title for title, _ in PARTS])
    for title, name in (*PARTS, ("total", "total_bytes"), ("GPU memory", "gpu_memory_bytes")):
        value = getattr(budget, name)
        if value or name not in PASSING:
            made.add_row(title, f"{value / 2**30:,.2f}", _bar(value / budget.gpu_memory_bytes, longest))
    print_table(out, made)
    where = f" on pipeline stage {budget.stage} of {plan.pipeline_parallel_size}, which needs most"
    left = budget.gpu_memory_bytes - budget.total_bytes
    verdict = f"It fits: {gib(left)} left" if budget.fits else f"It does not fit: {gib(-left)} short"
    out.print(f"\n{verdict} per GPU{where if plan.pipeline_parallel_size > 1 else ''}.")
    for note in budget.assumptions:
        out.print("  " + ": ".join(note[:2]) + f" ({note[2]})", style="dim", markup=False)


def _bar(share: float, longest: int) -> str:
    """GPU memory is two thirds of the longest bar; what takes more than that one is cut."""
    return "█" * min(longest, round(longest * 2 / 3 * share))


def _shortfall(
    budget: "TrainingBudget", cluster: "TrainingBudget | None", changes: Sequence[Changes], max_gpus: int
) -> str:
    options = [" ".join(str(word) for pair in change for word in pair if word is not None) for change in changes]
    told = [f"fits with {' or '.join(options)}"] if options else []
    if cluster is not None:
        told.append(f"unchanged, it needs {cluster.plan.num_gpus:,} GPUs ({cluster.plan.layout})")
    elif not told:
        told.append(f"no cluster of up to {max_gpus:,} GPUs holds it; shorten --seq-len")
    return (
        f"training {budget.model} does not fit on {budget.plan.num_gpus:,} × {budget.gpu} ({budget.plan.layout}): "
        f"{budget.missing_bytes / 2**30:,.1f} GiB short per GPU; {'; '.join(told)}"
    )


def _changes(plan: TrainingPlan, other: TrainingPlan) -> Changes:
    """The options that differ."""
    differ = {name: value for name, value in vars(other).items() if value != getattr(plan, name)}
    return tuple((_spelling(name), None if value is True else value) for name, value in differ.items())


def _was_given(name: str) -> bool:
    return click.get_current_context().get_parameter_source(name) in (
        ParameterSource.COMMANDLINE,
        ParameterSource.DEFAULT_MAP,
    )
