"""The words of a pasted command line: flags with their values, as the options here take them."""

import re
import shlex
from collections.abc import Mapping
from typing import Any

import click

from files.errors import HeadcountError
from files.names import nearest_hint, shortened
from headcount.cli.config_file import Spelling, converted
from simulator.engines.vllm.environment import VARIABLE


def variables_and_words(
    text: str, option: str, starts_server: re.Pattern[str], command: list[str], example: str
) -> tuple[tuple[str, ...], list[str]]:
    """The environment variables in front of the server's command, and the words behind it.

    What `starts_server` matches, or the `command` in the beginning, is that. Raises ValueError where nothing is behind.
    """
    words = words_of(text, option)
    starts = [place for place, word in enumerate(words) if starts_server.match(word)]
    first = next((place for place, word in enumerate(words) if not VARIABLE.match(word)), len(words))
    head = words[: starts[0] if starts else first]  # docker's own words hold variables behind -e
    words = words[starts[0] + 1 :] if starts else words[first:]
    if words[: len(command)] == command:
        words = words[len(command) :]
    if not words:
        raise HeadcountError(f"{option} is empty; paste a '{example} --flag value …' line, or leave it out")
    found = [word.removeprefix("--env=") for word in head]
    return tuple(word for word in found if VARIABLE.match(word)), words


def words_of(text: str, option: str) -> list[str]:
    """As a shell would split them. Raises HeadcountError for a quote that is left open."""
    try:
        return shlex.split(text.replace("\\\n", " "))
    except ValueError:
        raise HeadcountError(f"{option}: a quote is left open in '{shortened(text)}'; close it") from None


def read_flags(
    words: list[str],
    ctx: click.Context,
    option: str,
    names: Mapping[str, Spelling],
    without_effect: frozenset[str],
) -> dict[str, object]:
    """Option values by parameter name; `names` are flags without dashes in front.

    Flags are written as engines take them: with - or _, with a blank or = before the value. Raises ValueError naming
    every flag that is not modelled, or the first value that its option would refuse.
    """
    found: dict[str, object] = {}
    unknown: list[str] = []
    words = list(words)
    while words:
        flag, is_joined, value = words.pop(0).partition("=")
        values = [value] if is_joined else []
        while not is_joined and words and not _is_flag(words[0]):
            values.append(words.pop(0))
        name = flag.lstrip("-").replace("_", "-")
        if name in without_effect:
            continue
        if not _is_flag(flag) or name not in names:
            unknown.append(flag)
        else:
            found[names[name].key] = _value(ctx, option, flag, names[name], values)
    if unknown:
        hint = "; " + nearest_hint(unknown[0].lstrip("-"), names) if len(unknown) == 1 else ""
        given = ", ".join(shortened(flag) for flag in unknown)
        raise HeadcountError(f"{option}: {given}: not modelled; leave it out{hint}")
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _value(ctx: click.Context, option: str, flag: str, spelling: Spelling, values: list[str]) -> Any:
    if spelling.option.is_flag:
        if values:
            raise HeadcountError(f"{option}: {flag} takes no value; it was given '{shortened(values[0])}'")
        return not spelling.turns_off
    if len(values) != 1:
        given = f"was given '{shortened(' '.join(values))}'" if values else "was given none"
        raise HeadcountError(f"{option}: {flag} takes one value; it {given}")
    try:
        return converted(ctx, spelling, values[0])
    except ValueError as error:
        raise HeadcountError(f"{option}: {flag}: {error}") from None
