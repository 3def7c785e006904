"""The flags of a pasted command line with their values, as the options here take them."""

from collections.abc import Collection, Mapping
from typing import Any

import click

from files.errors import HeadcountError
from files.names import near_hint, shortened
from files.warn_once import warn_once
from headcount.cli.config_file import Spelling, converted
from simulator.engines.flags import IGNORED, REFUSED, TITLES, FlagGroup, find_group, known_flags, read_flag

Given = list[tuple[str, list[str]]]  # flags as they are written, with their values


def read_flags(
    words: list[str],
    ctx: click.Context,
    option: str,
    names: Mapping[str, Spelling],
    *,
    engine: str,
    elsewhere: Collection[str] = (),
) -> dict[str, object]:
    """Option values by parameter name; `names` are flags without dashes in front, `elsewhere` those of other commands.

    Flags are written as engines take them: with - or _, with a blank or = before the value, cut where they stay
    unique. Raises HeadcountError naming every flag that changes the answer and is not modelled, or the first value
    that its option would refuse.
    """
    found: dict[str, object] = {}
    refused: dict[FlagGroup, list[str]] = {}
    ignored: list[str] = []
    unknown: list[str] = []
    for flag, values in _flags_of(words):
        name = _known_name(flag, names, engine)
        group, turns_off = read_flag(engine, name)
        if name in names and _is_flag(flag):
            found[names[name].key] = _value(ctx, option, flag, names[name], values)
        elif name in elsewhere:
            continue
        elif group is None or not _is_flag(flag):
            unknown.append(flag)
        elif group.effect == REFUSED and not _asks_for_nothing(group, values, turns_off=turns_off):
            refused.setdefault(group, []).append(shortened(flag))
        elif group.effect == IGNORED:
            ignored.append(shortened(flag))
    if refused:
        raise HeadcountError(f"{option}: {'; '.join(group.refusal(*flags) for group, flags in refused.items())}")
    if unknown:
        raise _unknown(unknown, option, engine, {*names, *known_flags(engine)})
    if ignored:
        flags = list(dict.fromkeys(ignored))
        are, them = ("are", "them") if len(flags) > 1 else ("is", "it")
        warn_once(f"{option}: {', '.join(flags)} {are} not modelled: the answer ignores {them}")
    return found


def _unknown(given: Collection[str], option: str, engine: str, known: Collection[str]) -> HeadcountError:
    """Of flags that no release of the engine has, or, without those, of words that belong to none."""
    title = TITLES[engine]
    flags = list(dict.fromkeys(filter(_is_flag, given)))
    shown = ", ".join(shortened(word) for word in flags or given)
    them = "them" if len(flags or given) > 1 else "it"
    if not flags:
        return HeadcountError(f"{option}: {shown}: neither a flag of {title} nor the value of one; leave {them} out")
    near = near_hint(flags[0].lstrip("-").replace("_", "-"), known) if len(flags) == 1 else ""
    hint = f"; {near}" if near else ""
    return HeadcountError(
        f"{option}: {shown}: {title} has no such flag{'s' * (len(flags) > 1)}; leave {them} out{hint}"
    )


def _flags_of(words: list[str]) -> Given:
    """Each flag, or other word, with the words behind it that are none; of one with = the value alone."""
    found: Given = []
    takes_more = False
    for word in words:
        flag, is_joined, value = word.partition("=")
        if _is_flag(word):
            found.append((flag, [value]) if is_joined else (word, []))
            takes_more = not is_joined
        elif takes_more:
            found[-1][1].append(word)
        else:
            found.append((word, []))
    return found


def _is_flag(word: str) -> bool:
    return word.startswith("-") and not word[1:2].isdigit()


def _known_name(flag: str, names: Collection[str], engine: str) -> str:
    """Its name without dashes; whole where it is the beginning of one flag alone, without the keys of a JSON value."""
    name = flag.lstrip("-").partition(".")[0].replace("_", "-")
    if name in names or not name or find_group(engine, name) is not None:
        return name
    longer = {known for known in (*names, *known_flags(engine)) if known.startswith(name)}
    whole = longer.pop() if len(longer) == 1 else name
    return whole if 2 * len(name) > len(whole) else name  # --gpu is none, though argparse would take it


def _asks_for_nothing(group: FlagGroup, values: list[str], *, turns_off: bool) -> bool:
    if not values:
        return turns_off
    return all(value.lower() in (*group.nothing, "false") for value in values)


def _value(ctx: click.Context, option: str, flag: str, spelling: Spelling, values: list[str]) -> Any:
    if spelling.option.is_flag:
        said = " ".join(values).lower()  # as older releases took it: --enable-chunked-prefill false
        if said not in ("", "true", "false"):
            raise HeadcountError(f"{option}: {flag} takes no value; it was given '{shortened(values[0])}'")
        return (said != "false") != spelling.turns_off
    if len(values) != 1:
        given = f"was given '{shortened(' '.join(values))}'" if values else "was given none"
        raise HeadcountError(f"{option}: {flag} takes one value; it {given}")
    try:
        return converted(ctx, spelling, values[0])
    except ValueError as error:
        raise HeadcountError(f"{option}: {flag}: {error}") from None
