"""An engine's flags that no argument here stands for: which are passed over, which are refused, and why."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from files.documents import Json

TITLES: Final = {"vllm": "vLLM", "sglang": "SGLang"}
SHORT: Final = 3  # letters of dcp, asc and the like
MODELLED, WITHOUT_EFFECT, IGNORED, REFUSED = EFFECTS = ("modelled", "without_effect", "ignored", "refused")


@dataclass(frozen=True, kw_only=True)
class FlagGroup:
    """Flags that are alike, without dashes in front; a name that ends in * stands for all that begin so."""

    engine: str
    effect: str  # one of EFFECTS
    flags: tuple[str, ...]
    why: str = ""  # they are not refused
    what: str = ""  # they ask for
    instead: str = ""  # the nearest that can be asked
    nothing: tuple[str, ...] = ()  # values that ask for nothing

    def refusal(self, *given: str) -> str:
        """Why flags of the group are refused, and what to do."""
        leave = f"leave {', '.join(given)} out"
        if self.engine == "vllm":
            return f"{self.what} is not simulated; {leave}{f', or give {self.instead}' if self.instead else ''}"
        vllm = f", or ask about vLLM with {self.instead}" if self.instead else ""
        return f"{self.what} is not simulated with {TITLES[self.engine]}; {leave}{vllm}"


@cache
def flag_groups(engine: str) -> tuple[FlagGroup, ...]:
    """Of `vllm` or `sglang`, in the table's order."""
    table: Json = tomllib.loads((Path(__file__).parent / engine / "flags.toml").read_text(encoding="utf-8"))
    return tuple(_group(engine, effect, each) for effect, groups in table.items() for each in groups)


def _group(engine: str, effect: str, table: Json) -> FlagGroup:
    lists = {name: tuple(table.get(name, ())) for name in ("flags", "nothing")}
    return FlagGroup(engine=engine, effect=effect, **{**table, **lists})


def option_text(group: FlagGroup, flag: str) -> str:
    """What to do with a flag that is given as an option, and stands in the table alone."""
    if group.effect == REFUSED:
        return group.refusal(flag)
    of = f"{flag} of {TITLES[group.engine]}"
    if group.effect == MODELLED:
        return (
            f"{of} is no option; it is modelled as {group.why}: give that, or the whole line as --{group.engine}-args"
        )
    does = "has no effect on the answer" if group.effect == WITHOUT_EFFECT else "is not modelled"
    return f"{of} {does} ({group.why}); leave it out"


def find_group(engine: str, flag: str) -> FlagGroup | None:
    """The group of a flag without its dashes, by its whole name or its longest known beginning; None where none is."""
    exact = _by_name(engine).get(flag)
    if exact is not None:
        return exact
    begins = [name for name in _by_name(engine) if name.endswith("*") and flag.startswith(name[:-1])]
    return _by_name(engine)[max(begins, key=len)] if begins else None


def read_flag(engine: str, flag: str) -> tuple[FlagGroup | None, bool]:
    """The group of a flag without its dashes, also of `no-flag` and of vLLM's inverse; whether it turns it off."""
    inverse = inverse_of(flag) if engine == "vllm" else flag
    for name, turns_off in ((flag, False), (flag.removeprefix("no-"), True), (inverse, True)):
        if (group := find_group(engine, name)) is not None:
            return group, turns_off
    return None, False


def inverse_of(flag: str) -> str:
    """`disable-x` of `enable-x`, and the other way round: vLLM pairs them since 0.33. Itself where it has none.

    Source: vllm/utils/argparse_utils.py of 0.33, EnableDisableAction.
    """
    for begin, other in (("enable-", "disable-"), ("disable-", "enable-")):
        if flag.startswith(begin):
            return other + flag.removeprefix(begin)
    return flag


def known_flags(engine: str) -> frozenset[str]:
    """Every whole name of the table, without the short ones, which nobody mistypes."""
    return frozenset(name for name in _by_name(engine) if not name.endswith("*") and len(name) > SHORT)


@cache
def _by_name(engine: str) -> Mapping[str, FlagGroup]:
    return {name: group for group in flag_groups(engine) for name in group.flags}
