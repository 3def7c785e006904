"""A population in figures: mean, median and 95th percentile of what its users do."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from workloads.distributions import Distribution, RoundedUp
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.retrieval import Retrieval
from workloads.requests import OPEN_END

_UNITS: Final = {
    "turns": "turns",
    "user_tokens": "tokens",
    "output_tokens": "tokens",
    "think_time_s": "s",
    "thinking_share": "share",
}
_MIDDLE_AND_TAIL: Final = np.array([0.5, 0.95])


@dataclass(frozen=True, kw_only=True)
class Part:
    """One table of a population's file."""

    name: str
    unit: str
    mean: float
    p50: float
    p95: float
    given: Any
    """As the file says it, without the source."""
    source: str


@dataclass(frozen=True, kw_only=True)
class PopulationSummary:
    """What users do, where `max_model_len` cuts nothing."""

    name: str
    title: str
    parts: tuple[Part, ...]
    mean_think_time_s: float
    mean_turns: float
    mean_context_tokens: float
    """Of prompt and answer together, as a turn ends."""
    mean_output_tokens: float
    beside: Mapping[str, Any]
    """Tables of its file that are no quantities, as it says them: what happens at the limit, whose users these are."""

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def population_summary(population: Population) -> PopulationSummary:
    """Its figures; those of its parts come from quantiles, the context from its turns in equilibrium."""
    return PopulationSummary(
        name=population.name,
        title=str(population.tables.get("title", "")),
        parts=tuple(_parts(population)),
        mean_think_time_s=population.think_time_s.mean(),
        mean_turns=RoundedUp(inner=population.turns).mean(),
        mean_context_tokens=equilibrium(population, OPEN_END - 1).context,
        mean_output_tokens=population.output_tokens.mean(),
        beside={
            name: population.tables[name] for name in ("images", "at_limit", "tenants") if name in population.tables
        },
    )


def _parts(population: Population) -> list[Part]:
    tokens = float(population.system_prompt_tokens)
    given, source = _given(population.tables.get("system_prompt", population.system_prompt_tokens))
    found = [Part(name="system_prompt", unit="tokens", mean=tokens, p50=tokens, p95=tokens, given=given, source=source)]
    for name, unit in _UNITS.items():
        distribution: Distribution | None = getattr(population, name)
        if distribution is None:
            continue
        if name == "turns":
            distribution = RoundedUp(inner=distribution)
        given, source = _given(population.tables.get(name))
        p50, p95 = distribution.quantile(_MIDDLE_AND_TAIL).tolist()
        part = Part(name=name, unit=unit, mean=distribution.mean(), p50=p50, p95=p95, given=given, source=source)
        found.append(part)
    if population.retrieved is not None:
        found.append(_retrieved(population, population.retrieved))
    return [*found, *_waits(population)]


def _waits(population: Population) -> Iterator[Part]:
    """Seconds that users, and their client library, wait."""
    patience_s, timeout_s = population.clients.patience_s, population.clients.library.timeout_s
    if patience_s is not None:
        given, source = _given(population.tables.get("patience_s"))
        p50, p95 = patience_s.quantile(_MIDDLE_AND_TAIL).tolist()
        mean = patience_s.mean()
        yield Part(name="patience_s", unit="s", mean=mean, p50=p50, p95=p95, given=given, source=source)
    if timeout_s < math.inf:
        given, source = _given(population.tables.get("client"))
        yield Part(name="client", unit="s", mean=timeout_s, p50=timeout_s, p95=timeout_s, given=given, source=source)


def _retrieved(population: Population, retrieved: Retrieval) -> Part:
    """Tokens of all chunks of a turn."""
    p50, p95 = (retrieved.counts(_MIDDLE_AND_TAIL) * float(retrieved.chunk_tokens)).tolist()
    given, source = _given(population.tables.get("retrieved"))
    mean = retrieved.mean_tokens()
    return Part(name="retrieved", unit="tokens", mean=mean, p50=p50, p95=p95, given=given, source=source)


def _given(part: object) -> tuple[Any, str]:
    """A table of the file without its source, and the source."""
    if not isinstance(part, Mapping):
        return part, ""
    return {key: value for key, value in part.items() if key != "source"}, str(part.get("source", ""))
