"""The options that commands share, under vLLM's names where vLLM has one."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headcount.cli.config_file import read_config
from headcount.cli.option_types import COUNT, Duration, FilePath, Number, SpeculativeConfig, TokenCount, WholeNumber
from headcount.cli.vllm_args import read_vllm_args
from kvcache.releases import DEFAULT_RELEASE

F = TypeVar("F", bound=Callable[..., Any])


def all_of(*options: Any) -> Callable[[F], F]:
    """Options or arguments as one decorator, in the order of `--help`."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.default_map = {**read_config(path, ctx), **(ctx.default_map or {})}


def _load_vllm_args(ctx: click.Context, _: click.Parameter, text: str | None) -> None:
    """They win over --config, whichever comes first."""
    if text is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_vllm_args(text, ctx)}


def _load_startup_log(ctx: click.Context, _: click.Parameter, path: Path | None) -> Any:
    """The server's settings become defaults: options given beside it win."""
    if path is None:
        return None
    from calibrate.readers.parsing.startup_log import read_startup_log  # noqa: PLC0415  imported where it is given

    log = read_startup_log(path)
    known = {parameter.name for parameter in ctx.command.params}
    options = {name: value for name, value in log.options.items() if name in known}
    ctx.default_map = {**(ctx.default_map or {}), **options}
    return log


deployment_options = all_of(
    click.option("--model", required=True, help="Model name as on Hugging Face, an alias, or a path to a config.json."),
    click.option("--gpu", required=True, help="GPU name, such as h100-sxm; see 'headcount gpus'."),
    click.option("--tensor-parallel-size", "-tp", type=WholeNumber(1), help="GPUs that share each layer."),
    click.option(
        "--data-parallel-size",
        "-dp",
        type=WholeNumber(1),
        default=1,
        show_default=True,
        help="Attention replicas of one server; a mixture's experts are shared by all of them.",
    ),
    click.option(
        "--enable-expert-parallel/--no-enable-expert-parallel",
        default=False,
        show_default=True,
        help="Whole experts on each GPU instead of a part of every expert.",
    ),
    click.option("--dtype", default="auto", show_default=True, help="Of weights that are not packed: auto, float16, …"),
    click.option("--quantization", "-q", help="Weight format, such as fp8 or awq.  [default: the checkpoint's]"),
    click.option(
        "--kv-cache-dtype",
        default="auto",
        show_default=True,
        help="KV-cache format, such as fp8; auto: the checkpoint's own.",
    ),
    click.option("--max-model-len", type=TokenCount(), help="Longest context.  [default: the model's]"),
    click.option("--max-num-seqs", type=COUNT, help="Most sequences in a step.  [default: vLLM's]"),
    click.option("--max-num-batched-tokens", type=TokenCount(), help="Token budget of a step.  [default: vLLM's]"),
    click.option(
        "--gpu-memory-utilization",
        type=Number("a share above 0, at most 1, such as 0.9"),
        help="Share of GPU memory given to vLLM.  [default: vLLM's]",
    ),
    click.option("--block-size", type=TokenCount(), help="Tokens in a KV block.  [default: vLLM's, mostly 16]"),
    click.option("--num-gpu-blocks-override", type=COUNT, help="KV blocks, instead of the memory model's."),
    click.option(
        "--startup-log",
        type=FilePath(),
        callback=_load_startup_log,
        is_eager=True,
        help="What your vLLM server logged at its start: its settings, and its KV blocks, measured.",
    ),
    click.option("--enforce-eager/--no-enforce-eager", default=False, help="No CUDA graphs."),
    click.option("--vllm-version", default=DEFAULT_RELEASE, show_default=True, help="The release whose rules apply."),
    click.option(
        "--vllm-args",
        metavar="TEXT",
        callback=_load_vllm_args,
        is_eager=True,
        expose_value=False,
        help="A pasted 'vllm serve MODEL --flag value …' line, or its flags; options given beside it win.",
    ),
    click.option(
        "--strict", is_flag=True, help="Refuse what would be assumed: unknown architectures, unmeasured GPUs."
    ),
)

# First requests of H100 servers waited so long (docs/accuracy.md).
cold_start_option = click.option(
    "--cold-start",
    "cold_start_s",
    type=Duration(),
    help="What a server's first step takes longer, where no request warmed it up: 0.1–1.2 s on H100.  [default: 0s]",
)

scheduler_options = all_of(
    click.option("--scheduling-policy", default="fcfs", show_default=True, help="fcfs, or priority."),
    click.option(
        "--long-prefill-token-threshold",
        type=WholeNumber(0),
        default=0,
        show_default=True,
        help="Most tokens of one prompt in a step beside others; 0 for no limit.",
    ),
    click.option(
        "--enable-chunked-prefill/--no-enable-chunked-prefill",
        default=True,
        show_default=True,
        help="A prompt may be computed over several steps.",
    ),
    click.option(
        "--scheduler-reserve-full-isl/--no-scheduler-reserve-full-isl",
        default=True,
        show_default=True,
        help="A request is admitted only if its whole prompt fits the KV cache.",
    ),
    click.option(
        "--watermark",
        type=Number("a share from 0 to below 1, such as 0.01"),
        default=0.0,
        show_default=True,
        help="Share of the KV blocks kept free when a request is admitted beside others.",
    ),
    click.option(
        "--prefix-cache-retention-interval",
        type=WholeNumber(0),
        help="Tokens between the ends of sliding windows kept in the prefix cache.  [default: the release's]",
    ),
    click.option(
        "--speculative-config",
        "speculation",
        type=SpeculativeConfig(),
        help='As vLLM\'s, with an acceptance_rate: \'{"method": "ngram", "num_speculative_tokens": 3, '
        '"acceptance_rate": 0.6}\'. Needs --latency-model constant.',
    ),
    click.option(
        "--enable-prefix-caching/--no-enable-prefix-caching",
        default=True,
        show_default=True,
        help="Requests with equal beginnings share KV blocks.",
    ),
    click.option(
        "--async-scheduling/--no-async-scheduling",
        default=None,
        help="The next step is decided while one runs.  [default: the release's, mostly on since 0.14]",
    ),
    click.option(
        "--router",
        default="least-outstanding",
        show_default=True,
        help="round-robin, least-outstanding or session-affinity.",
    ),
    click.option("--latency-model", default="physical", show_default=True, help="physical, or constant."),
    click.option(
        "--step-s",
        type=Number("seconds, such as 0.01"),
        help="Seconds per step, with --latency-model constant.  [default: 0.01]",
    ),
    click.option(
        "--latency-profile",
        type=FilePath(),
        help="Step times fitted to your server, a file of 'headcount calibrate fit'.",
    ),
)

slo_options = all_of(
    click.option(
        "--slo", "slo_name", default="chat", show_default=True, help="A named SLO; the options below change it."
    ),
    click.option("--ttft", type=Duration(), help="Limit on the time to first token.  [chat: 1s]"),
    click.option("--tpot", type=Duration(), help="Limit on the time per output token.  [chat: 50ms]"),
    click.option(
        "--attainment",
        type=Number("a share between 0 and 1, such as 0.95"),
        help="Share of requests that must meet both.  [chat: 0.95]",
    ),
)

workload_options = all_of(
    click.option("--trace-block-size", type=TokenCount(), default=512, show_default=True, help="Tokens per hash id."),
    click.option(
        "--think-time", type=Duration(), help="From an answer to the next request.  [default: the workload's]"
    ),
)


output_options = all_of(
    click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout."),
    click.option("--seed", type=WholeNumber(0), default=0, show_default=True, help="Same seed, same result."),
    click.option(
        "--config",
        type=FilePath(),
        callback=_load_config,
        is_eager=True,
        expose_value=False,
        help="Options from a YAML or TOML file, under the same names; the command line wins.",
    ),
)


def engine_options(values: dict[str, Any]) -> Any:
    """The options that `EngineOptions` has, out of a command's; absent ones keep its defaults."""
    from dataclasses import fields  # noqa: PLC0415  with the next, imported once a command runs

    from simulator.engines.vllm.engine import EngineOptions  # noqa: PLC0415

    names = {field.name for field in fields(EngineOptions)}
    given = {name: value for name, value in values.items() if name in names and value is not None}
    if values.get("startup_log") is not None and "num_gpu_blocks_override" not in given:
        given["num_gpu_blocks_override"] = _logged_blocks(values)
    return EngineOptions(**given)


def _logged_blocks(values: dict[str, Any]) -> int:
    """The KV blocks of a server's start-up log. Raises ValueError where another tensor-parallel size is asked for."""
    from kvcache.formats.kv_cache_dtype import kv_cache_dtype_of  # noqa: PLC0415
    from kvcache.layout.kv_layout import kv_layout  # noqa: PLC0415
    from kvcache.models.catalog import find_gpu, load_model  # noqa: PLC0415
    from kvcache.shape.architecture import with_dtype  # noqa: PLC0415

    log, size = values["startup_log"], values["tensor_parallel_size"] or 1
    if size != log.tensor_parallel_size:
        raise ValueError(
            f"--startup-log: {log.path} is of a server with --tensor-parallel-size {log.tensor_parallel_size}, "
            f"not {size}; its KV blocks say nothing of another"
        )
    architecture = with_dtype(load_model(values["model"]), values["dtype"])
    layout = kv_layout(
        architecture,
        tensor_parallel_size=size,
        kv_cache_dtype=kv_cache_dtype_of(
            architecture,
            values["kv_cache_dtype"],
            quantization=values["quantization"],
            vllm_version=values["vllm_version"],
        ),
        block_size=values["block_size"],
        gpu=find_gpu(values["gpu"]),
    )
    blocks: int = log.num_gpu_blocks(layout)
    return blocks


def slo_from(values: dict[str, Any]) -> Any:
    """The named SLO with what was given beside it."""
    from dataclasses import replace  # noqa: PLC0415

    from registry.names import nearest_hint  # noqa: PLC0415
    from simulator.study.slo import PRESETS  # noqa: PLC0415

    name = values["slo_name"]
    if name not in PRESETS:
        raise ValueError(f"no SLO '{name}'; {nearest_hint(name, list(PRESETS))}")
    given = {"ttft_s": values["ttft"], "tpot_s": values["tpot"], "attainment": values["attainment"]}
    return replace(PRESETS[name][0], **{key: value for key, value in given.items() if value is not None})
