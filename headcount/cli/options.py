"""The options that commands share, under vLLM's names where vLLM has one."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from headcount.cli.command import all_of, section
from headcount.cli.config_file import read_config
from headcount.cli.option_types import (
    NAME_OR_FILE,
    TRUSTED_NAME,
    Duration,
    FilePath,
    Number,
    Reads,
    TokenCount,
    WholeNumber,
)
from headcount.cli.vllm_args import read_vllm_args
from simulator.engines.argument import COLD_START, MEMORY, SCHEDULER, STEP_TIME, Argument, arguments_of, flags_of
from simulator.engines.vllm.arguments import EngineArgs

F = TypeVar("F", bound=Callable[..., Any])


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.meta["headcount.config"] = path
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


def argument_options(
    *decides: str, always_none: bool = False, without: tuple[str, ...] = (), default_text: Mapping[str, str] = {}
) -> Callable[[F], F]:
    """The options of an engine's arguments that decide so; with `always_none` nothing given is None.

    `default_text` says by name what a default is where it is another than the argument's.
    """
    return all_of(
        *(
            _option(name, described, always_none, default_text.get(name, described.default_text))
            for name, described in arguments_of(EngineArgs).items()
            if described.decides in decides and name not in without
        )
    )


def _option(name: str, described: Argument, always_none: bool, default_text: str) -> Any:
    default, text = (None, "") if always_none else (described.default, default_text)
    flags = flags_of(name, described)
    flags = ["/".join(flags)] if described.is_switch else flags
    return click.option(
        *flags,
        name,
        type=None if described.is_switch else Reads(described.kind),
        default=default,
        show_default=default not in (None, ()) and not text,
        help=described.help + (f"  [default: {text}]" if text else ""),
    )


model_options = section(
    "Deployment",
    click.option(
        "--model",
        type=NAME_OR_FILE,
        required=True,
        help="Model name as on Hugging Face, an alias, or a path to a config.json.",
    ),
    click.option("--gpu", required=True, help="GPU name, such as h100-sxm; see 'headcount gpus'."),
)
_deployment_sources = section(
    "Deployment",
    click.option(
        "--startup-log",
        type=FilePath(),
        callback=_load_startup_log,
        is_eager=True,
        help="The log of your vLLM server's start: gives its settings and its measured KV blocks.",
    ),
    click.option(
        "--vllm-args",
        metavar="TEXT",
        callback=_load_vllm_args,
        is_eager=True,
        expose_value=False,
        help="A pasted 'vllm serve MODEL --flag value …' line, or its flags. Other options win over it.",
    ),
)
_strict_option = click.option(
    "--strict", is_flag=True, help="Refuse answers that rest on assumptions: unknown architectures, unmeasured GPUs."
)


def deployment_options(**default_text: str) -> Callable[[F], F]:
    """What is served, and on what; `default_text` as in `argument_options`."""
    arguments = section("Deployment", argument_options(MEMORY, default_text=default_text))
    return all_of(model_options, arguments, _deployment_sources, _strict_option)


router_option = click.option(
    "--router",
    type=TRUSTED_NAME,
    default="least-outstanding",
    show_default=True,
    help="round-robin, least-outstanding, session-affinity, random, power-of-two, or module:Name of your own.",
)
scheduler_options = all_of(
    section("Scheduler", argument_options(SCHEDULER), router_option),
    section("Step times", argument_options(STEP_TIME)),
)
cold_start_option = section("Step times", argument_options(COLD_START))

slo_options = section(
    "SLO",
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

workload_options = section(
    "Traffic",
    click.option(
        "--trace-block-size", type=TokenCount(), default=512, show_default=True, help="Tokens per hash id of a trace."
    ),
    click.option(
        "--think-time",
        type=Duration(),
        help="Time from the end of an answer to the next request.  [default: the workload's]",
    ),
)


output_options = all_of(
    section("Output", click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")),
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
