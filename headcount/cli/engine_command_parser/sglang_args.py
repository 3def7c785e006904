"""Options read from a pasted `python -m sglang.launch_server` line."""

import re
from collections.abc import Iterator

import click

from files.errors import HeadcountError
from files.names import shortened
from headcount.cli.config_file import Spelling, spellings
from headcount.cli.engine_command_parser.line import read_flags, variables_and_words
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import SGLANG
from simulator.engines.sglang.arguments import SGLangArgs

_OPTION = "--sglang-args"
# SGLang's server: what stands before it is python's or docker's.
_STARTS_SERVER = re.compile(r"^(sglang\.launch_server|sglang_router\.launch_server)$")
_MODEL = ("model-path", "model")
_SPECULATION = ("speculative decoding", "--speculative-config")
_STAGES = ("pipeline parallelism", "--pipeline-parallel-size")
_DISAGGREGATED = ("separate prefill and decode", "--pools prefill=N,decode=N")
_HICACHE = ("HiCache", "--kv-offloading-size")
_ATTENTION = ("attention data parallelism", "--data-parallel-size")
_EXPERTS = ("expert parallelism", "--enable-expert-parallel")
_NOT_SIMULATED: dict[str, tuple[str, str | None]] = {  # how flags begin, what they ask for, with what vLLM has it here
    "speculative-": _SPECULATION,
    "pp-": _STAGES,
    "pipeline-parallel-size": _STAGES,
    "disaggregation-": _DISAGGREGATED,
    "enable-hierarchical-cache": _HICACHE,
    "enable-hicache": _HICACHE,
    "hicache-": _HICACHE,
    "enable-lora": ("LoRA", None),
    "lora-": ("LoRA", None),
    "max-lora": ("LoRA", None),
    "enable-dp-attention": _ATTENTION,
    "enable-dp-lm-head": _ATTENTION,
    "attn-dp-size": _ATTENTION,
    "ep-size": _EXPERTS,
    "expert-parallel-size": _EXPERTS,
    "enable-priority-scheduling": ("priority scheduling", "--scheduling-policy priority"),
    "enable-two-batch-overlap": ("two-batch overlap", None),
}
_ASKS_FOR_NOTHING = {
    **dict.fromkeys(("pp-size", "pipeline-parallel-size", "ep-size", "expert-parallel-size", "attn-dp-size"), ("1",)),
    "disaggregation-mode": ("null",),
}
# Arguments that capacity does not depend on.
WITHOUT_EFFECT = frozenset(
    {
        "host", "port", "api-key", "served-model-name", "trust-remote-code", "tokenizer-path", "tokenizer-mode",
        "revision", "download-dir", "load-format", "chat-template", "log-level", "log-level-http", "log-requests",
        "random-seed", "tool-call-parser", "reasoning-parser", "watchdog-timeout", "enable-metrics", "device",
        "show-time-cost", "decode-log-interval", "enable-cache-report", "base-gpu-id", "nccl-port",
        "skip-server-warmup", "sampling-defaults",
    }
)  # fmt: skip


def read_sglang_args(text: str, ctx: click.Context) -> dict[str, object]:
    """Option values by parameter name, from SGLang's flags with or without its command before them.

    Raises HeadcountError naming every flag that is not modelled, or the first value that its option would refuse.
    """
    example = "python -m sglang.launch_server"
    variables, words = variables_and_words(text, _OPTION, _STARTS_SERVER, ["sglang", "serve"], example)
    words = _simulated(words)
    found: dict[str, object] = {"engine": SGLANG} | ({"environment": variables} if variables else {})
    return found | read_flags(words, ctx, _OPTION, dict(_flags(ctx)), WITHOUT_EFFECT)


def _simulated(words: list[str]) -> list[str]:
    """Without flags that ask for nothing, such as --ep-size 1. Raises HeadcountError for what is not simulated."""
    kept: list[str] = []
    places = iter(range(len(words)))
    for place in places:
        word = words[place]
        flag, has_value, value = word.partition("=")
        flag = flag.lstrip("-").replace("_", "-")
        refused = refusal(flag)
        if not word.startswith("--") or refused is None:
            kept.append(word)
            continue
        if not has_value and place + 1 < len(words):
            value = words[place + 1]
        if value not in _ASKS_FOR_NOTHING.get(flag, ()):
            raise HeadcountError(f"{_OPTION}: {refused}")
        if not has_value:
            next(places)
    return kept


def refusal(flag: str) -> str | None:
    """Why a flag of SGLang's, without its dashes, is refused; None where it is not one of those."""
    asked = next((asked for begin, asked in _NOT_SIMULATED.items() if flag.startswith(begin)), None)
    if asked is None:
        return None
    what, instead = asked
    vllm = f", or ask about vLLM with {instead}" if instead else ""
    return f"{what} is not simulated with SGLang; leave --{shortened(flag)} out{vllm}"


def _flags(ctx: click.Context) -> Iterator[tuple[str, Spelling]]:
    """Every flag of SGLang that an option stands for, with the option."""
    by_key = {found.key: found for found in spellings(ctx.command.params).values() if not found.turns_off}
    for name in _MODEL:
        yield name, by_key["model"]
    for name, described in arguments_of(SGLangArgs).items():
        if described.is_engine_s and name in by_key:
            for flag in (flag_of(name, described), name.replace("_", "-"), *described.aliases):
                yield flag, by_key[name]
