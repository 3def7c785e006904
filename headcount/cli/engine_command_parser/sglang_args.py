"""Options read from a pasted `python -m sglang.launch_server` line."""

from collections.abc import Iterator

import click

from headcount.cli.config_file import Spelling, spellings
from headcount.cli.engine_command_parser.config_lines import as_command_line
from headcount.cli.engine_command_parser.context_length import overridden_length
from headcount.cli.engine_command_parser.line import read_flags
from headcount.cli.engine_command_parser.nested import take_objects
from headcount.cli.engine_command_parser.served_model import with_known_model
from headcount.cli.engine_command_parser.servers import SGLANG_SERVER
from headcount.cli.engine_command_parser.words import variables_and_words
from simulator.engines.argument import arguments_of, flag_of
from simulator.engines.engines import SGLANG
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.engines.sglang.attention_groups import in_groups
from simulator.engines.sglang.drafts import FLAGS, settings_of
from simulator.engines.vllm.speculation import SpeculativeConfig

_OPTION = "--sglang-args"
_MODEL = ("model-path", "model")
_OLD_GROUPS = "--enable-dp-attention"  # with --dp-size, for --attn-dp-size
_OVERRIDES, _DRAFTS = "json-model-override-args", "drafts"


def read_sglang_args(text: str, ctx: click.Context) -> dict[str, object]:
    """Option values by parameter name, from SGLang's flags with or without its command before them.

    Raises HeadcountError naming every flag that changes the answer and is not modelled, or the first value that its
    option would refuse.
    """
    names = dict(_flags(ctx))
    line = as_command_line(text, SGLANG, names)
    variables, words = variables_and_words(line, _OPTION, SGLANG_SERVER)
    found: dict[str, object] = {"engine": SGLANG} | ({"environment": variables} if variables else {})
    drafting = {flag: f"{_DRAFTS}.{word}" for flag, word in FLAGS.items()}
    words, objects = take_objects(words, _OPTION, {_OVERRIDES: _OVERRIDES} | drafting)
    if _DRAFTS in objects:
        found["speculation"] = SpeculativeConfig().read(settings_of(objects[_DRAFTS]))
    length = overridden_length(objects.get(_OVERRIDES, {}), _OPTION, f"--{_OVERRIDES}")
    if length is not None:
        found["context_length"] = length
    is_old = _OLD_GROUPS in words
    given = read_flags([word for word in words if word != _OLD_GROUPS], ctx, _OPTION, names, engine=SGLANG)
    return with_known_model(found | (in_groups(given) if is_old else given), _OPTION)


def _flags(ctx: click.Context) -> Iterator[tuple[str, Spelling]]:
    """Every flag of SGLang that an option stands for, with the option."""
    by_key = {found.key: found for found in spellings(ctx.command.params).values() if not found.turns_off}
    for name in _MODEL:
        yield name, by_key["model"]
    for name, described in arguments_of(SGLangArgs).items():
        if described.is_engine_s and name in by_key:
            for flag in (flag_of(name, described), name.replace("_", "-"), *described.aliases):
                yield flag, by_key[name]
