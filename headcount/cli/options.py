"""The options that commands share, under vLLM's names where vLLM has one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from headcount.cli.command import EARLY, all_of, section
from headcount.cli.config_file import read_config
from headcount.cli.engine_command_parser.sglang_args import read_sglang_args
from headcount.cli.engine_command_parser.vllm_args import read_vllm_args
from headcount.cli.option_types import Option, OutPath, flag, json_option, option
from headcount.inputs.traffic import TRAFFIC_CHANGES
from simulator.engines.argument import COLD_START, MEMORY, SCHEDULER, STEP_TIME, Argument, arguments_of, flags_of
from simulator.engines.engines import VLLM
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.values import (
    LARGEST_TEXT,
    ROUTER,
    Duration,
    FilePath,
    Gibibytes,
    IntegerList,
    Kind,
    Listed,
    Number,
    Objects,
    Share,
    Text,
    TokenCount,
    WholeNumber,
)
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.kv_transfer import KVTransferConfig
from simulator.engines.vllm.speculation import SpeculativeConfig
from simulator.fleet.pool_sizes import PoolSizes

_SHARED = tuple(arguments_of(EngineArgs))  # options that serve both engines


def _load_config(ctx: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.meta["headcount.config"] = path
        ctx.default_map = {**read_config(path, ctx), **(ctx.default_map or {})}


def _load_vllm_args(ctx: click.Context, _: click.Parameter, text: str | None) -> None:
    """They win over --config, whichever comes first."""
    if text is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_vllm_args(text, ctx)}


def _load_sglang_args(ctx: click.Context, _: click.Parameter, text: str | None) -> None:
    """The same for SGLang, which they ask for."""
    if text is not None:
        ctx.default_map = {**(ctx.default_map or {}), **read_sglang_args(text, ctx)}


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
    *decides: str,
    engine: type = EngineArgs,
    always_none: bool = False,
    are_lists: bool = False,
    without: tuple[str, ...] = (),
    default_text: Mapping[str, str] = {},
) -> Option:
    """The options of an engine's arguments that decide so; with `always_none` nothing given is None.

    `default_text` says by name what a default is where it is another than the argument's. With `are_lists` each takes
    values separated by commas, apart from those that hold commas themselves.
    """
    return all_of(
        *(
            _option(
                name,
                replace(described, kind=_listed(described.kind)) if are_lists else described,
                always_none,
                default_text.get(name, described.default_text),
            )
            for name, described in arguments_of(engine).items()
            if described.decides in decides and name not in without
        )
    )


def engine_options(*, are_lists: bool = False, always_none: bool = False) -> Option:
    """Which engine, and the arguments that SGLang alone has."""
    kind = Text("vllm|sglang")
    own = argument_options(
        MEMORY, SCHEDULER, engine=SGLangArgs, always_none=always_none, are_lists=are_lists, without=_SHARED
    )
    return all_of(
        section(
            "Deployment",
            option(
                "--engine",
                Listed(kind) if are_lists else kind,
                "The serving engine." if not are_lists else "The serving engine, or both: vllm,sglang.",
                default=VLLM,
            ),
            option(
                "--sglang-args",
                Text(),
                "A pasted 'python -m sglang.launch_server --flag value …' line, or its flags. Other options win over "
                "it.",
                callback=_load_sglang_args,
                **EARLY,
            ),
        ),
        section("SGLang (with --engine sglang)", own),
    )


def _listed(kind: Kind) -> Kind:
    if isinstance(kind, SpeculativeConfig | KVTransferConfig):
        return Objects(kind)
    return Listed(kind) if isinstance(kind, Text | TokenCount | WholeNumber | Number | Duration | Gibibytes) else kind


def _option(name: str, described: Argument, always_none: bool, default_text: str) -> Option:
    default, text = (None, "") if always_none else (described.default, default_text)
    flags = ("/" if described.is_switch else " ").join(flags_of(name, described))
    return option(
        f"{flags} {name}", described.kind, described.help + (f"  [default: {text}]" if text else ""), default=default
    )


def decider_option(**more: Any) -> Option:
    """Which prompts decode engines compute themselves."""
    says = (
        "Which prompts decode engines compute themselves: by llm-d, prefix-based-pd-decider:nonCachedTokens=512; by "
        "Dynamo, isl_bounding, prefill_load or isl_or_load.  [default: none]"
    )
    return section("Prefill and decode apart", option("--decider", Text(), says, **more))


def kv_transfer_option(**more: Any) -> Option:
    """Who moves the KV between engines."""
    says = (
        "pull: decode engines read it, as with vLLM's NixlConnector. push: prefill engines write it, as with its "
        "NixlPushConnector.  [default: pull]"
    )
    return section("Prefill and decode apart", option("--kv-transfer", Text(), says, **more))


between_options = section(
    "Prefill and decode apart",
    option("--kv-transfer-rate", Number("GB/s"), "KV between engines, by one GPU, one way.  [default: 35.5]"),
    option(
        "--dispatch dispatch_s",
        Duration(),
        "From the end of a prefill to the request's arrival at its decode engine.  [default: 25ms]",
    ),
)
apart_options = all_of(
    section(
        "Prefill and decode apart",
        option(
            "--pools",
            PoolSizes(),
            "Engines that compute prompts and engines that compute answers: prefill=2,decode=6, or with GPUs for each "
            "prefill=2xtp1,decode=2xtp4.",
        ),
    ),
    kv_transfer_option(),
    between_options,
    decider_option(),
)
model_option = option(
    "--model",
    Text(may_be_path=True),
    "Model name as on Hugging Face, an alias, or a path to a config.json.",
    required=True,
)
model_options = section(
    "Deployment",
    model_option,
    option("--gpu", Text(), "GPU name, such as h100-sxm; see 'headcount gpus'.", required=True),
)
_startup_log_option = section(
    "Deployment",
    option(
        "--startup-log",
        FilePath(),
        "The log of your server's start: gives its settings and its measured KV cache.",
        callback=_load_startup_log,
        is_eager=True,
    ),
)
vllm_args_option = section(
    "Deployment",
    option(
        "--vllm-args",
        Text(),
        "A pasted 'vllm serve MODEL --flag value …' line, or its flags. Other options win over it.",
        callback=_load_vllm_args,
        **EARLY,
    ),
)
strict_option = flag("--strict", "Refuse answers that rest on assumptions: unknown architectures, unmeasured GPUs.")


def deployment_options(**default_text: str) -> Option:
    """What is served, and on what, under vLLM or SGLang; `default_text` as in `argument_options`."""
    return all_of(model_options, engine_argument_options(**default_text))


def engine_argument_options(**default_text: str) -> Option:
    """The same without model and GPU."""
    arguments = section("Deployment", argument_options(MEMORY, default_text=default_text))
    return all_of(arguments, _startup_log_option, vllm_args_option, engine_options(), strict_option)


ROUTERS = (
    "least-outstanding, session-affinity, round-robin, llm-d, cache-aware, dynamo-kv …, a name with NAME:key=value, "
    "or module:Name of your own; see docs/reference/routers.md."
)


DEFAULT_ROUTER = "  [default: least-outstanding; vllm-dp for one server with -dp]"


def listed_deployment_options(*, gpus: str) -> Option:
    """The same, each a list: of GPUs, GPU counts, engine arguments, routers."""
    tp = {"tensor_parallel_size": "the best that fits"}
    return all_of(
        section(
            "Deployment",
            model_option,
            option("--gpu", Listed(Text()), "GPU names, such as h100-sxm,l40s; see 'headcount gpus'.", required=True),
            option("--gpus", IntegerList(), "GPUs of each layout, or a list.", default=gpus),
            argument_options(MEMORY, always_none=True, are_lists=True, default_text=tp),
        ),
        vllm_args_option,
        engine_options(are_lists=True, always_none=True),
        strict_option,
        section(
            "Scheduler",
            argument_options(SCHEDULER, always_none=True, are_lists=True),
            option("--router", Listed(ROUTER), ROUTERS + DEFAULT_ROUTER),
        ),
        section("Step times", argument_options(STEP_TIME, always_none=True, are_lists=True)),
    )


router_option = option("--router", ROUTER, ROUTERS + DEFAULT_ROUTER)
scheduler_options = all_of(
    section("Scheduler", argument_options(SCHEDULER), router_option),
    section("Step times", argument_options(STEP_TIME)),
)
cold_start_option = section("Step times", argument_options(COLD_START))
interpreter_options = all_of(
    option("--vllm-version", Text(), "An installed release.  [default: the newest]"),
    option("--python", FilePath(), "Another interpreter that has vLLM."),
)
format_option = option(
    "--format format_name",
    Text(names_code=True),
    "Format of all files: a name, or module:Name.  [default: found from their content]",
)
LENGTH_SPREAD = Number("1 for exact lengths, 0.8 for 80 % to 100 % of them")

slo_options = section(
    "SLO",
    option("--slo slo_name", Text(), "A named SLO; the options below change it.", default="chat"),
    option("--ttft", Duration(), "Limit on the time to first token.  [chat: 1s]"),
    option("--tpot", Duration(), "Limit on the time per output token.  [chat: 50ms]"),
    option(
        "--attainment",
        Number("a share between 0 and 1, such as 0.95"),
        "Share of requests that must meet both.  [chat: 0.95]",
    ),
)

study_options = section(
    "Running",
    flag("--no-store", "Neither look for finished simulations in the cache folder nor keep them there."),
    option(
        "--executor",
        Text(names_code=True),
        "Where simulations run: threads, processes, ray (on RAY_ADDRESS, if set), or module:Name of your own.",
        default="threads",
    ),
    option("--workers", WholeNumber(1, 10_000), "Simulations that run side by side.  [default: one per processor]"),
)

_COLUMNS = (
    "Columns of a CSV, Parquet or JSON lines trace in no known format: prompt, output, and, if there, time, session, "
    "think, priority, tenant; such as time_ms=ts,prompt=usage.prompt_tokens,output=usage.completion_tokens."
)
_LOG_PATTERN = "Regular expression for the lines of a log, with groups of the names of --columns: (?P<prompt>\\d+) …"
_TRAFFIC = (
    "Changes of the workload: context=x2 (or 8K), output=600, turns=x2, think-time=30s, system-prompt=4K, "
    "long-prompts=10%:32K; separated by commas."
)
gateway_options = section(
    "Gateway",
    option(
        "--flow-control",
        Text(names_code=True, takes_parameters=True),
        "A queue before the router while the fleet is saturated: utilization-detector or concurrency-detector, with "
        "NAME:key=value; see docs/how-to/tenants-and-quotas.md.  [default: none]",
    ),
    option(
        "--tenants",
        FilePath(),
        "A TOML file with a table [tenants.NAME] for each: its share of the users, priority, rpm_limit, tpm_limit.",
    ),
)
trace_options = all_of(
    option("--trace-block-size", TokenCount(), "Tokens per block id of a trace.  [default: as its format has it]"),
    option("--trace-format", Text(), "Format of a trace, by name.  [default: found from its content]"),
    option("--columns", Text("NAME=COLUMN,…"), _COLUMNS),
    option("--log-pattern", Text("REGEX"), _LOG_PATTERN),
    flag(
        "--spread-ticks", "Spread times of a trace that are rounded, such as to 3 s, evenly over what they stand for."
    ),
    option("--splice", FilePath(), "Another trace that follows this one; may be repeated.", multiple=True),
    option("--stretch", Number("a factor"), "Multiply all times of a trace, think times too: 2 is half as fast."),
    option("--rate-scale", Number("a factor"), "So many times a trace's sessions in the same time, such as 2 or 0.5."),
)
change_options = all_of(
    option("--system-prompt", Text("TOKENS"), "Tokens that all conversations begin with.  [default: the workload's]"),
    option("--context-scale", Number("a factor"), "So many times as long prompts with their answers, on average."),
    option("--output-scale", Number("a factor"), "So many times as long answers."),
    option("--turns", Text("NUMBER"), "Mean turns of a conversation.  [default: the workload's]"),
    option("--traffic", TRAFFIC_CHANGES, _TRAFFIC),
)
workload_options = all_of(
    trace_options,
    option(
        "--think-time",
        Duration(),
        "Time from the end of an answer to the next request.  [default: the workload's]",
    ),
    change_options,
    option("--patience", Text("TIME"), "Mean time that users wait for the first token.  [default: for ever]"),
    option("--client-timeout", Text("TIME"), "Time after which clients cancel an unfinished answer.  [default: none]"),
    option("--retries", Text("N"), "Attempts that follow time-outs.  [default: 2, as openai-python has it]"),
)

traffic_options = section(
    "Traffic",
    option(
        "--workload",
        Text(may_be_path=True),
        "A preset (see 'headcount workload list'), a population's TOML file, or a trace.",
        default="chat",
    ),
    workload_options,
)

report_options = section(
    "Output",
    option(
        "--report",
        OutPath(is_report=True),
        "Also write a report to this file: .html, .md, .pdf, .csv, .json, or .svg for its first chart.",
    ),
)


def precision_options(*, precision: str) -> Option:
    """How well users are to be known, and what that may take."""
    return all_of(
        option("--precision", Share(), "Half of the sampling interval, as a share of the users.", default=precision),
        option(
            "--replications",
            WholeNumber(2, 10_000),
            "Independent runs of a load.  [default: as many as --precision takes]",
        ),
    )


output_options = all_of(
    section("Output", json_option),
    option("--seed", WholeNumber(0, LARGEST_TEXT), "Same seed, same result.", default=0),
    option(
        "--config",
        FilePath(),
        "Options from a YAML or TOML file, under the same names; the command line wins.",
        callback=_load_config,
        **EARLY,
    ),
)
