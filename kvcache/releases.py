"""Every rule that depends on a release of vLLM, by name; releases.toml says what it means and where it holds."""

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from files.documents import Json
from files.errors import HeadcountError

NEWEST_RELEASE = "0.33.0"  # whose rules are known
DEFAULT_RELEASE = NEWEST_RELEASE
SGLANG_RELEASE = "0.5.23"  # the one of SGLang whose rules are known
OLDEST_RELEASE = "0.4.1"  # of the servers that the memory model was compared with
_NUMBER = re.compile(r"^v?([0-9]{1,4})\.([0-9]{1,4})(?:\.([0-9]{1,4}))?(?:(?:\.?(?:a|b|rc|dev|post)|\+).*)?$", re.ASCII)


@cache
def release_key(vllm_version: str) -> tuple[int, int, int]:
    """What releases sort by. Raises HeadcountError on anything that is not a release number."""
    match = _NUMBER.match(vllm_version)
    if match is None:
        raise HeadcountError(
            f"vllm_version {vllm_version[:40]!r} is not a release number; give one such as '{DEFAULT_RELEASE}'"
        )
    return int(match[1]), int(match[2]), int(match[3] or 0)


def release_number(vllm_version: str) -> str:
    """`v0.19.1rc2` → `0.19.1`."""
    return ".".join(map(str, release_key(vllm_version)))


def precedes(vllm_version: str, other: str) -> bool:
    """Whether a release is older than another."""
    return release_key(vllm_version) < release_key(other)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What holds from release `since` on, up to the one before `until`; None: at any time."""

    meaning: str
    source: str
    since: str | None = None
    until: str | None = None

    @property
    def first(self) -> str:
        """The line of releases from which on it holds, such as `0.28`."""
        assert self.since is not None, "asked of a rule that always held"
        return ".".join(self.since.split(".")[:2])

    def holds_in(self, vllm_version: str) -> bool:
        """Raises HeadcountError on anything that is not a release number."""
        is_new = self.since is None or not precedes(vllm_version, self.since)
        return is_new and (self.until is None or precedes(vllm_version, self.until))


_CONTENT: Json = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SCHEDULER_RULES: dict[str, Rule] = {name: Rule(**rule) for name, rule in _CONTENT.pop("scheduler").items()}
_RULES: dict[str, Rule] = {name: Rule(**rule) for name, rule in _CONTENT.items()} | SCHEDULER_RULES


def __getattr__(name: str) -> Rule:
    """A rule of releases.toml under its name there: `from kvcache.releases import ENGINE_V1`."""
    if name not in _RULES:
        raise AttributeError(f"no rule {name} in kvcache/releases.toml")
    return _RULES[name]


def rules() -> dict[str, Rule]:
    """Every rule by name."""
    return _RULES


def check_known_memory(vllm_version: str) -> None:
    """Raise HeadcountError for a release too old for the memory model."""
    if precedes(vllm_version, OLDEST_RELEASE):
        raise HeadcountError(
            f"vllm_version is {release_number(vllm_version)}; memory is known from {OLDEST_RELEASE} on; give a later "
            "release"
        )


def check_simulated(vllm_version: str) -> None:
    """Raise HeadcountError for a release whose scheduler is not simulated."""
    engine_v1 = _RULES["ENGINE_V1"]
    if not engine_v1.holds_in(vllm_version):
        raise HeadcountError(
            f"vllm_version is {release_number(vllm_version)}, which schedules with engine V0; engine V1 is simulated, "
            f"the default from {engine_v1.since} on; give a later release ('headcount memory' knows older)"
        )


def newer_than_known(vllm_version: str) -> str | None:
    """What is said of a release whose own rules are not known yet."""
    if not precedes(NEWEST_RELEASE, vllm_version):
        return None
    return f"{release_number(vllm_version)} is newer than any known release: the rules of {NEWEST_RELEASE} apply"
