"""Which share of drafts is accepted, as users give it: a rate, rates by position, a server's log, a published run."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from files.documents import read_toml
from files.errors import HeadcountError
from files.names import nearest_hint, shortened
from files.schema import Share, Strict, typed

PUBLISHED = Path(__file__).parent / "acceptance.toml"
MAX_SPECULATIVE_TOKENS = 64
KEYS = ("acceptance_rate", "per_position_acceptance_rate", "acceptance")


class PublishedRates(Strict, frozen=True, kw_only=True):
    """Rates by position that somebody measured: each given that the drafts before it were accepted."""

    acceptance_rate: list[Share]
    about: str
    source: str
    assumed_for: str = ""  # the method that is taken to be accepted so where no rate is given


@cache
def published_rates() -> Mapping[str, PublishedRates]:
    """By name."""
    return typed(read_toml(PUBLISHED), dict[str, PublishedRates], PUBLISHED)


def with_acceptance_rate(settings: Mapping[str, object]) -> dict[str, object]:
    """The settings with `acceptance_rate` alone of what tells it; published rates where nothing does.

    Raises ValueError where two keys tell it, or nothing does and none are published for the method.
    """
    given = [key for key in KEYS if settings.get(key) is not None]
    others = {key: value for key, value in settings.items() if key not in KEYS}
    assumed = next((each for each in published_rates().values() if each.assumed_for == settings.get("method")), None)
    if not given and assumed is not None:
        return others | {"acceptance_rate": _extended(assumed.acceptance_rate), "assumed_acceptance": assumed.about}
    if not given:
        raise HeadcountError(
            "acceptance_rate is missing: the share of draft tokens that your server accepts, which its log and "
            '/metrics tell; add it to the JSON, such as "acceptance_rate": 0.7'
        )
    if len(given) > 1:
        raise HeadcountError(f"{' and '.join(given)} say the same; give one of them")
    value = settings[given[0]]
    if given[0] == "acceptance":
        value = list(_published(value).acceptance_rate)
    elif given[0] == "per_position_acceptance_rate":
        value = conditional(typed(value, list[Share], "", name=given[0]))
    return others | {"acceptance_rate": value}


def _extended(rates: list[float]) -> list[float]:
    """For as many draft tokens as there may be: later positions are accepted as the last one published."""
    return rates + rates[-1:] * (MAX_SPECULATIVE_TOKENS - len(rates))


def conditional(per_position: list[float]) -> list[float]:
    """Rates where the drafts before were accepted, from shares of all steps that accept each position (vLLM's log).

    Raises HeadcountError where a later position is accepted more often than one before it.
    """
    before = [1.0, *per_position]
    for earlier, later in zip(before, per_position, strict=False):
        if later > earlier:
            raise HeadcountError(
                f"per_position_acceptance_rate rises from {earlier:g} to {later:g}; a draft counts only where those "
                "before it were accepted, so give falling shares, or acceptance_rate"
            )
    return [later / earlier if earlier else 0.0 for earlier, later in zip(before, per_position, strict=False)]


def _published(name: object) -> PublishedRates:
    known = published_rates()
    if not isinstance(name, str) or name not in known:
        raise HeadcountError(
            f"no published acceptance {shortened(repr(name))}; {nearest_hint(str(name), sorted(known))}"
        )
    return known[name]
