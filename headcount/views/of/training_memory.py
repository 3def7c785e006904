"""Where memory goes in training, in words."""

from files.documents import Json
from headcount.queries.training_memory import TrainingMemoryResult, options_of
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, gib
from headcount.text.words import model_title
from headcount.views.report_data.assumptions import of_terms
from headcount.views.summary.summary import Summary
from kvcache.memory.terms import gib_text
from kvcache.models.catalog import find_gpu

WORDS = (
    ("TP", "tensor parallel: GPUs that share each layer."),
    ("PP", "pipeline parallel: each GPU holds a part of the layers."),
    ("DP", "data parallel: copies of the model that split the batch."),
    ("ZeRO", "what the data-parallel copies shard: 1 optimizer state, 2 also gradients, 3 also weights."),
    ("GiB", "1.07 GB."),
)  # fmt: skip

MEMORY_BAR = 2 / 3  # of the longest bar: what does not fit shows beyond it


def summary(answer: TrainingMemoryResult) -> Summary:
    budget, plan = answer.budget, answer.budget.plan
    left = budget.gpu_memory_bytes - budget.total_bytes
    gpus = f"{plan.num_gpus:,} × {find_gpu(budget.gpu).title}"
    where = _where_it_fits(answer)
    instead = f"it fits {where[0]}" if where else "shorten --seq-len"
    fitting = ("it fits", " or ".join(where) or "with none of the options tried")
    memory = f"{gib(budget.total_bytes)} needed, it has {gib(budget.gpu_memory_bytes)}"
    return Summary(
        question=f"Does training {model_title(budget.model)} fit on {gpus}?",
        answer=f"Yes: {gib_text(left)} of each GPU are left"
        if answer.fits
        else f"No: each GPU lacks {gib_text(-left)}; {instead}",
        figures=(("layout", plan.layout), ("memory of each GPU", memory), *(() if answer.fits else (fitting,))),
        risk="Fragmentation and libraries may take more memory than the allowance.",
        words=WORDS,
        is_good=answer.fits or bool(where),
    )


def _where_it_fits(answer: TrainingMemoryResult) -> list[str]:
    """With what change, or on how many GPUs in which layout."""
    said = [f"with {' '.join(options_of(each))}" for each in answer.changes]
    if answer.cluster is not None:
        said.append(f"unchanged on {counted(answer.cluster.plan.num_gpus, 'GPU')} as {answer.cluster.plan.layout}")
    return said


def head(answer: TrainingMemoryResult) -> list[Block]:
    budget, plan = answer.budget, answer.budget.plan
    where = f" trained on {counted(plan.num_gpus, 'GPU')} ({budget.gpu})"
    trained, beside = f"{budget.num_trainable_parameters:,}", f"{budget.num_parameters:,}"
    adapters = f"{trained} adapter parameters and {beside} frozen ones" if plan.lora_rank else f"{beside} parameters"
    return [
        Line(f"{where}: {plan.layout}, {plan.precision}, {plan.optimizer}", bold=budget.model),
        Line(adapters),
        Line(f"{plan.global_batch_size:,} × {plan.sequence_length:,} tokens per optimizer step"),
    ]


def body(answer: TrainingMemoryResult) -> list[Block]:
    budget, rows = answer.budget, answer.rows()
    ends = [min(1.0, MEMORY_BAR * row["bytes"] / budget.gpu_memory_bytes) for row in rows]
    table = Table(
        columns=("per GPU", "GiB"),
        rows=[(row["part"], f"{row['gib']:,.2f}") for row in rows],
        bars=[(0.0, end) for end in ends],
    )
    stages = budget.plan.pipeline_parallel_size
    where = f" on pipeline stage {budget.stage} of {stages}, which needs most" if stages > 1 else ""
    left = budget.gpu_memory_bytes - budget.total_bytes
    told = f"It fits: {gib_text(left)} left" if budget.fits else f"It does not fit: {gib_text(-left)} short"
    return [table, Line(), Line(f"{told} per GPU{where}.")]


def details(answer: TrainingMemoryResult) -> Json:
    return {"assumptions": of_terms("memory", answer.budget.assumptions)}
