"""Options read from a pasted `python -m sglang.launch_server` line."""

import re
from collections.abc import Iterator
from typing import Any

import click

from boundary.names import shortened
from headcount.cli.option_names import Spelling, spellings
from headcount.cli.pasted.line import read_flags, words_of
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import SGLANG
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.vllm.environment import VARIABLE

_OPTION = "--sglang-args"
# SGLang's server: what stands before it is python's or docker's.
_STARTS_SERVER = re.compile(r"^(sglang\.launch_server|sglang_router\.launch_server)$")
_MODEL = ("model-path", "model")
_NOT_SIMULATED = {  # how flags begin, and what they ask for
    "speculative-": "speculative decoding",
    "pp-": "pipeline stages",
    "pipeline-parallel-size": "pipeline stages",
    "disaggregation-": "separate prefill and decode",
    "enable-hierarchical-cache": "HiCache",
    "enable-hicache": "HiCache",
    "hicache-": "HiCache",
    "enable-lora": "LoRA",
    "lora-": "LoRA",
    "max-lora": "LoRA",
    "enable-dp-attention": "attention data parallelism",
    "attn-dp-size": "attention data parallelism",
    "ep-size": "expert parallelism",
    "expert-parallel-size": "expert parallelism",
    "enable-priority-scheduling": "priorities",
    "enable-dp-lm-head": "attention data parallelism",
    "enable-two-batch-overlap": "two-batch overlap",
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


def read_sglang_args(text: str, ctx: click.Context) -> dict[str, Any]:
    """Option values by parameter name, from SGLang's flags with or without its command before them.

    Raises ValueError naming every flag that is not modelled, or the first value that its option would refuse.
    """
    words = words_of(text, _OPTION)
    while words and VARIABLE.match(words[0]):
        words.pop(0)
    starts = [place for place, word in enumerate(words) if _STARTS_SERVER.match(word)]
    words = words[starts[0] + 1 :] if starts else words
    if words[:2] == ["sglang", "serve"]:
        words = words[2:]
    if not words:
        raise ValueError(
            f"{_OPTION} is empty; paste a 'python -m sglang.launch_server --flag value …' line, or leave it out"
        )
    _refuse_features(words)
    return {"engine": SGLANG} | read_flags(words, ctx, _OPTION, dict(_flags(ctx)), WITHOUT_EFFECT)


def _refuse_features(words: list[str]) -> None:
    for word in words:
        flag = word.partition("=")[0].lstrip("-").replace("_", "-")
        what = next((what for begin, what in _NOT_SIMULATED.items() if flag.startswith(begin)), None)
        if word.startswith("--") and what is not None:
            raise ValueError(f"{_OPTION}: {what} is not simulated with SGLang; leave --{shortened(flag)} out")


def _flags(ctx: click.Context) -> Iterator[tuple[str, Spelling]]:
    """Every flag of SGLang that an option stands for, with the option."""
    by_key = {found.key: found for found in spellings(ctx.command.params).values() if not found.turns_off}
    for name in _MODEL:
        yield name, by_key["model"]
    for name, described in arguments_of(SGLangArgs).items():
        if described.is_engine_s and name in by_key:
            for flag in (flag_of(name, described), name.replace("_", "-"), *described.aliases):
                yield flag, by_key[name]
