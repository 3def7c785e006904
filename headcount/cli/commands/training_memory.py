"""`headcount training-memory`: what a rank holds in training."""

import click
from click.core import ParameterSource

from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.option_types import Option, option
from headcount.cli.options import answer_options, model_options
from headcount.cli.output import finish
from headcount.queries.training_memory import DEFAULT, option_of, training_memory
from kvcache.training.states import LORA_TARGETS, optimizer_names, precision_names
from simulator.engines.values import Kind, Number, Switch, Text, TokenCount, WholeNumber

AT_LEAST_ONE = WholeNumber(1)


def _option(field: str, short: str = "", *, says: str, kind: Kind = AT_LEAST_ONE) -> Option:
    """An option that sets a field of the plan, under the plan's default."""
    name, default = option_of(field), getattr(DEFAULT, field)
    if isinstance(default, bool):
        return option(f"{name}/--no-{name[2:]} {field}", Switch(), says, default=default)
    return option(f"{name} {short} {field}", kind, says, default=default)


@click.command("training-memory", cls=QuestionCommand)
@model_options
@section(
    "Parallelism",
    _option("tensor_parallel_size", "-tp", says="GPUs that share each layer."),
    _option("pipeline_parallel_size", "-pp", says="Pipeline stages."),
    _option("data_parallel_size", "-dp", says="Copies of the model that split the batch."),
    _option("expert_parallel_size", "-ep", says="Data-parallel ranks that share the experts."),
    _option("virtual_pipeline_stages", says="Chunks of layers per pipeline stage, for the interleaved schedule."),
    _option("zero_stage", kind=WholeNumber(0), says="ZeRO stage 0–3: what data-parallel ranks shard. 3 is FSDP."),
)
@section(
    "Training",
    _option("precision", kind=Text(), says=f"{', '.join(precision_names())}."),
    _option("fp32_gradients", says="Gradients accumulated in fp32, as Megatron does."),
    _option("optimizer", kind=Text(), says=f"{', '.join(optimizer_names())}."),
    _option("micro_batch_size", says="Sequences in one forward pass of a rank."),
    _option("sequence_length", kind=TokenCount(), says="Tokens per sequence."),
    _option("gradient_accumulation", says="Micro-batches per optimizer step. They fill the pipeline."),
    _option("recompute", kind=Text(), says="Activation recomputation: none, selective, full."),
    _option("sequence_parallel", says="Sequence parallelism: tensor-parallel ranks split norms and dropout by tokens."),
    _option("flash_attention", says="FlashAttention: attention scores are not stored."),
    _option("fused_kernels", says="Fused norms, SwiGLU and softmax. Off: eager transformers."),
    _option("dropout", says="The model is trained with dropout."),
)
@section(
    "Adapters",
    _option("lora_rank", kind=WholeNumber(0), says="Rank of the trained adapters. 0 trains all weights."),
    _option("lora_targets", kind=Text(), says=f"{', '.join(LORA_TARGETS)}."),
    _option("qlora", says="QLoRA: frozen weights are packed to NF4. Needs --lora-rank."),
)
@section(
    "Search",
    _option("allowance", kind=Number("a share from 0 to below 1, such as 0.1"), says="Share of GPU memory left free."),
    option(
        "--num-gpus",
        AT_LEAST_ONE,
        "Search for the smallest cluster with at most this many GPUs. -tp, -pp, -dp, -ep and --zero stay fixed if "
        "given.",
    ),
)
@answer_options
def command(given: Given) -> int:
    """Show the memory per GPU in training, whether the run fits, and the smallest cluster that is large enough."""
    source, was_given = (
        click.get_current_context().get_parameter_source,
        (
            ParameterSource.COMMANDLINE,
            ParameterSource.DEFAULT_MAP,
        ),
    )
    left_open = [name for name in given.training.arguments if source(name) not in was_given]
    return finish(training_memory(**given.arguments(training_memory, searched=left_open)), given)
