"""How each tenant was served."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.core import layout
from simulator.study.statistics import summary
from workloads.requests import RequestTable

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class TenantFigures:
    """Of one tenant's requests, retries too; a rejected one missed the SLO."""

    name: str
    num_requests: int
    num_rejected: int
    attainment: float | None  # None where the fate of none is known
    ttft_p95_s: float | None

    def to_json(self) -> dict[str, object]:
        return asdict(self)


def tenant_figures(
    table: RequestTable, requests: NDArray[np.void], counted: BoolArray, missed: BoolArray, decided: BoolArray
) -> tuple[TenantFigures, ...]:
    """By name; `missed` and `decided` are of the counted requests. Nothing where nobody says whose requests are."""
    if table.tenancy is None:
        return ()
    of, attempts = np.tile(table.tenancy.of, table.num_attempts)[counted], requests[counted]
    found = []
    for number, tenant in enumerate(table.tenancy.tenants):
        mine = of == number
        num_decided = int(decided[mine].sum())
        ttft_s = (attempts["first_token_s"] - attempts["arrival_s"])[mine]
        found.append(
            TenantFigures(
                name=tenant.name,
                num_requests=int(mine.sum()),
                num_rejected=int((attempts["status"][mine] == layout.REJECTED).sum()),
                attainment=1 - float((missed & decided)[mine].sum()) / num_decided if num_decided else None,
                ttft_p95_s=summary(ttft_s)["p95"],
            )
        )
    return tuple(found)


def pooled(replications: Sequence[tuple[TenantFigures, ...]]) -> tuple[TenantFigures, ...]:
    """Over replications: sums of requests, means of what is known, weighted by the requests."""
    return tuple(
        TenantFigures(
            name=each[0].name,
            num_requests=sum(one.num_requests for one in each),
            num_rejected=sum(one.num_rejected for one in each),
            attainment=_mean([(one.attainment, one.num_requests) for one in each]),
            ttft_p95_s=_mean([(one.ttft_p95_s, one.num_requests) for one in each]),
        )
        for each in zip(*replications, strict=True)
    )


def _mean(values: Sequence[tuple[float | None, int]]) -> float | None:
    known = [(value, weight) for value, weight in values if value is not None and weight]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
