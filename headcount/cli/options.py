"""The options of commands, made from the inputs that they stand for and from the engines' arguments."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click

from files.errors import HeadcountError
from files.names import shortened
from files.reading import read_text
from files.warn_once import warn_once
from headcount.cli.command import EARLY, GIVEN_WORDS, all_of, section
from headcount.cli.config_file import read_config
from headcount.cli.option_types import MANIFESTS_FOLDER, REPORT_PATH, Option, flag, json_option, option
from headcount.inputs.fields import Described, Inputs, described
from headcount.inputs.run import RunInput, SeedInput
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from simulator.engines.argument import COLD_START, MEMORY, SCHEDULER, STEP_TIME, Argument, arguments_of, flags_of
from simulator.engines.engines import VLLM
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.values import (
    Duration,
    FilePath,
    Gibibytes,
    IntegerList,
    Kind,
    Listed,
    Number,
    Objects,
    Text,
    TokenCount,
    WholeNumber,
)
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.kv_transfer import KVTransferConfig
from simulator.engines.vllm.speculation import SpeculativeConfig

_SHARED: Final = tuple(arguments_of(EngineArgs))  # options that serve both engines
_PASTED_FILES: Final = (".yaml", ".yml", ".toml", ".sh", ".bash", ".txt", ".env", ".service")  # that hold a command
_OLD_FLAGS: Final = {"suggest": "--lifts"}  # names of flags in 0.1, which 0.2 still takes


def inputs(kind: type[Inputs], *only: str, without: tuple[str, ...] = (), heading: str = "") -> Option:
    """The options of an input's fields, or of some; under their own headings, or another one.

    None of them has a default of click's: what is not given has the field's.
    """
    found = [
        section(heading or each.heading, _field_option(name, each))
        for name, each in described(kind).items()
        if (not only or name in only) and name not in without
    ]
    old = [_old_flag(name, each) for name, each in described(kind).items() if name in _OLD_FLAGS]
    return all_of(*found, *old)


def _old_flag(name: str, each: Described) -> Option:
    """The hidden old name of a flag: it still works, and stderr says what to write instead."""

    def take(ctx: click.Context, _: click.Parameter, is_given: bool) -> None:
        if is_given:
            warn_once(f"{_OLD_FLAGS[name]} is now called --{each.flag_of(name)}; the next release drops the old name")
            ctx.default_map = {**(ctx.default_map or {}), name: True}

    return flag(_OLD_FLAGS[name], f"Old name of --{each.flag_of(name)}.", hidden=True, callback=take, **EARLY)


def _field_option(name: str, each: Described) -> Option:
    flags = f"--{each.flag_of(name)}" + (f" -{each.short}" if each.short else "")
    if each.is_flag:
        return flag(f"{flags} {each.parameter_of(name)}", each.help)
    plain = "" if each.default in (None, ()) or isinstance(each.default, bool) else str(each.default)
    text = each.default_text or plain
    says = each.help + (f"  [default: {text}]" if text else "")
    more: dict[str, object] = {"multiple": True} if each.is_many else {}
    return option(f"{flags} {name}", each.kind, says, required=each.is_required, **more)


def _gives(read: Callable[[Any, click.Context], Mapping[str, object]], *, wins: bool = True) -> Any:
    """An option's callback: what it reads are defaults of other options, which win over those of --config."""

    def load(ctx: click.Context, _: click.Parameter, given: object) -> None:
        if given is not None:
            known = ctx.default_map or {}
            ctx.default_map = {**known, **read(given, ctx)} if wins else {**read(given, ctx), **known}

    return load


def _read_vllm_args(text: str, ctx: click.Context) -> dict[str, object]:
    from headcount.cli.engine_command_parser.vllm_args import read_vllm_args  # noqa: PLC0415  imported where it is given

    return read_vllm_args(_pasted(text, "--vllm-args"), ctx)


def _pasted(text: str, option: str) -> str:
    """What was pasted, or the whole of the file that is named instead: a script, a manifest, a chart's values.

    Raises HeadcountError where it names a file that cannot be read.
    """
    given = text.strip().removeprefix("@")
    is_file = text.strip().startswith("@") or Path(given).suffix.lower() in _PASTED_FILES
    if len(given.split()) != 1 or not is_file:
        return text
    if not Path(given).is_file():
        raise HeadcountError(f"{option}: there is no file {shortened(given)}; name one, or paste the command itself")
    return read_text(Path(given))


def _read_sglang_args(text: str, ctx: click.Context) -> dict[str, object]:
    from headcount.cli.engine_command_parser.sglang_args import read_sglang_args  # noqa: PLC0415  as above

    return read_sglang_args(_pasted(text, "--sglang-args"), ctx)


def _load_startup_log(ctx: click.Context, _: click.Parameter, path: Path | None) -> object:
    """The server's settings become defaults: options given beside it win."""
    if path is None:
        return None
    from calibrate.readers.parsing.startup_log import read_startup_log  # noqa: PLC0415  imported where it is given
    from headcount.cli.engine_command_parser.served_model import with_known_model  # noqa: PLC0415

    log = read_startup_log(
        path, vllm_version=_given_value(ctx, "vllm_version"), max_model_len=_given_value(ctx, "max_model_len")
    )
    known = {parameter.name for parameter in ctx.command.params}
    options = {name: value for name, value in log.options.items() if name in known}
    ctx.default_map = {**(ctx.default_map or {}), **with_known_model(options, "--startup-log")}
    return log


def _given_value(ctx: click.Context, name: str) -> Any:
    """An option's value from the command line, even if click reads it later, or from what was read before; or None."""
    given = ctx.meta.get(GIVEN_WORDS, {}).get(name)
    option_of_name = next((each for each in ctx.command.params if each.name == name), None)
    if option_of_name is not None and isinstance(given, str):
        return option_of_name.type_cast_value(ctx, given)
    return (ctx.default_map or {}).get(name)


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
            _argument_option(
                name,
                replace(argument, kind=_listed(argument.kind)) if are_lists else argument,
                always_none,
                default_text.get(name, argument.default_text),
            )
            for name, argument in arguments_of(engine).items()
            if argument.decides in decides and name not in without
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
                f"Serving engine{', or both to compare: vllm,sglang' if are_lists else ': vllm or sglang'}.",
                default=VLLM,
            ),
            option(
                "--sglang-args",
                Text(may_be_path=True),
                "Pasted 'python -m sglang.launch_server --flag value …' line, or its flags; or the file that holds it. "
                "Other options override it.",
                callback=_gives(_read_sglang_args),
                **EARLY,
            ),
        ),
        section("SGLang (with --engine sglang)", own),
    )


def _listed(kind: Kind) -> Kind:
    if isinstance(kind, SpeculativeConfig | KVTransferConfig):
        return Objects(kind)
    return Listed(kind) if isinstance(kind, Text | TokenCount | WholeNumber | Number | Duration | Gibibytes) else kind


def _argument_option(name: str, argument: Argument, always_none: bool, default_text: str) -> Option:
    default, text = (None, "") if always_none else (argument.default, default_text)
    flags = ("/" if argument.is_switch else " ").join(flags_of(name, argument))
    return option(
        f"{flags} {name}", argument.kind, argument.help + (f"  [default: {text}]" if text else ""), default=default
    )


model_option = option(
    "--model",
    Text(may_be_path=True),
    "Hugging Face model name, an alias, or a path to a config.json.",
    required=True,
)
model_options = section(
    "Deployment",
    model_option,
    option("--gpu", Text(), "GPU name, such as h100-sxm. See 'headcount gpus'.", required=True),
)
_startup_log_option = section(
    "Deployment",
    option(
        "--startup-log",
        FilePath(),
        "Start-up log of your server. It gives the settings and the measured KV-cache size.",
        callback=_load_startup_log,
        is_eager=True,
    ),
)
vllm_args_option = section(
    "Deployment",
    option(
        "--vllm-args",
        Text(may_be_path=True),
        "Pasted 'vllm serve MODEL --flag value …' line, or its flags; or the script, compose file, manifest or chart's "
        "values that holds it (deploy.yaml). Other options override it.",
        callback=_gives(_read_vllm_args),
        **EARLY,
    ),
)
strict_option = inputs(RunInput, "strict")


def deployment_options(*, has_log: bool = True, always_none: bool = False, **default_text: str) -> Option:
    """What is served, and on what, under vLLM or SGLang; `default_text` as in `argument_options`."""
    engine = engine_argument_options(has_log=has_log, always_none=always_none, without=(), **default_text)
    return all_of(model_options, engine)


def engine_argument_options(
    *, has_log: bool = True, always_none: bool = False, without: tuple[str, ...] = (), **default_text: str
) -> Option:
    """The same without model and GPU; with `has_log` a start-up log may give them."""
    arguments = argument_options(MEMORY, always_none=always_none, without=without, default_text=default_text)
    log = (_startup_log_option,) if has_log else ()
    engine = engine_options(always_none=always_none)
    return all_of(section("Deployment", arguments), *log, vllm_args_option, engine, strict_option)


def scheduler_options(*routers: Option, always_none: bool = False) -> Option:
    """What decides steps and their times, and the router if there is one."""
    return all_of(
        section("Scheduler", argument_options(SCHEDULER, always_none=always_none)),
        *routers,
        section("Step times", argument_options(STEP_TIME, always_none=always_none)),
    )


def listed_deployment_options(*, gpus: str, router: Option) -> Option:
    """The same, each a list: of GPUs, GPU counts, engine arguments, routers."""
    tp = {"tensor_parallel_size": "the best that fits"}
    return all_of(
        section(
            "Deployment",
            model_option,
            option("--gpu", Listed(Text()), "GPU names, such as h100-sxm,l40s. See 'headcount gpus'.", required=True),
            option("--gpus", IntegerList(), "GPUs of each layout, one number or a list.", default=gpus),
            argument_options(MEMORY, always_none=True, are_lists=True, default_text=tp),
        ),
        vllm_args_option,
        engine_options(are_lists=True, always_none=True),
        strict_option,
        section("Scheduler", argument_options(SCHEDULER, always_none=True, are_lists=True)),
        router,
        section("Step times", argument_options(STEP_TIME, always_none=True, are_lists=True)),
    )


cold_start_option = section("Step times", argument_options(COLD_START))
interpreter_options = all_of(
    option("--vllm-version", Text(), "Installed vLLM release.  [default: the one beside Headcount, else the newest]"),
    option("--python", FilePath(), "Python interpreter that has vLLM."),
)
traffic_options = all_of(
    section(
        "Traffic",
        option(
            "--workload",
            Text(may_be_path=True),
            "Preset (see 'headcount workload list'), TOML file of a population, or a trace.",
            default="chat",
        ),
    ),
    inputs(TrafficInput),
)
slo_options = inputs(SLOInput)
running_options = all_of(inputs(RunInput, "store", "executor", "workers"), inputs(RunInput, "explain"))
report_options = section(
    "Output",
    option(
        "--report",
        REPORT_PATH,
        "Write a report to this file: .html, .md, .pdf, .csv, .json, or .svg for its first chart.",
    ),
)
manifest_options = section(
    "Output",
    option(
        "--emit",
        MANIFESTS_FOLDER,
        "Write manifests of the cheapest fleet and Prometheus alerts to this folder, which is created if need be.",
    ),
    option(
        "--format manifest_formats",
        Listed(Text()),
        "Formats of --emit: kubernetes, docker-compose, production-stack, kserve, llm-d, dynamo, keda.  [default: "
        "kubernetes]",
    ),
)
output_options = all_of(
    section("Output", json_option),
    inputs(SeedInput, "seed"),
    option(
        "--config",
        FilePath(),
        "Read options from a YAML or TOML file with the same names. The command line overrides it.",
        callback=_gives(read_config, wins=False),
        **EARLY,
    ),
)
answer_options = all_of(report_options, output_options)
study_options = all_of(running_options, answer_options)
