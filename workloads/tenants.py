"""Whose users these are: tenants with a share of them, a priority and quotas."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final

import numpy as np
from msgspec import Meta

from files.documents import ReadJson, read_toml
from files.names import check_names, shortened
from files.reading import InputError, shown
from files.schema import Strict, typed
from workloads.randomness import hashed_uniforms
from workloads.requests import Int32Array, RequestTable, Tenancy, Tenant

MOST_TENANTS: Final = 1000
_GOLDEN: Final = (math.sqrt(5) - 1) / 2  # its multiples spread evenly: any number of users has the shares, nearly

_Limit = Annotated[float, Meta(ge=1, le=1e12, description="a number per minute, at least 1")]


class TenantTable(Strict, frozen=True, kw_only=True):
    """What a file says of one tenant."""

    share: Annotated[float, Meta(gt=0, le=1, description="a share above 0, at most 1")] | None = None
    """Of the users, or of a trace's sessions; none where the trace says whose each request is."""
    priority: Annotated[int, Meta(ge=-(2**31), lt=2**31, description="a whole number")] | None = None
    """Of its requests, as vLLM has it: the lower, the sooner. None: as the workload has it, 0 for a population."""
    rpm_limit: _Limit | None = None
    tpm_limit: _Limit | None = None
    system_prompt_tokens: (
        Annotated[int, Meta(ge=1, le=2**20, description="a whole number of tokens, 1 to 1,048,576")] | None
    ) = None
    """Its own system prompt, of so many tokens, in place of the workload's. None: the workload's, which is shared."""
    source: str = ""


_Tables = dict[str, TenantTable]


@dataclass(frozen=True, kw_only=True)
class Tenants:
    """Tenants by name. Raises InputError for shares that are not those of all users."""

    tables: tuple[tuple[str, TenantTable], ...]

    def __post_init__(self) -> None:
        shares = [table.share for _, table in self.tables]
        if not self.tables or len(self.tables) > MOST_TENANTS:
            raise InputError(f"{len(self.tables):,} tenants; give 1 to {MOST_TENANTS:,}")
        if None in shares and any(share is not None for share in shares):
            lacks = next(name for name, table in self.tables if table.share is None)
            raise InputError(f"tenant '{shortened(lacks)}' has no share, others have; give every tenant one, or none")
        total = sum(share for share in shares if share is not None)
        if total and abs(total - 1) > 1e-6:
            raise InputError(f"shares of tenants add up to {total:.6g}; they must add up to 1")

    @property
    def system_prompts(self) -> tuple[int | None, ...]:
        """Tokens of each one's own system prompt."""
        return tuple(table.system_prompt_tokens for _, table in self.tables)

    @property
    def longest_system_prompt(self) -> int:
        """Tokens of the longest of their own; 0 where none has one."""
        return max(tokens or 0 for tokens in self.system_prompts)

    def applied(self, table: RequestTable, seed: int) -> RequestTable:
        """The table with these tenants. Raises InputError where it and they do not say whose each request is."""
        tenancy = self._of_names(table.tenancy) if table.tenancy is not None else self._of_shares(table, seed)
        given = dict(self.tables)
        known = [given.get(tenant.name, TenantTable()) for tenant in tenancy.tenants]
        is_given = np.array([each.priority is not None for each in known])[tenancy.of]
        priority = np.array([each.priority or 0 for each in known], np.int32)[tenancy.of]
        return replace(table, tenancy=tenancy, priority=np.where(is_given, priority, table.priority))

    def _of_names(self, found: Tenancy) -> Tenancy:
        """Those that a trace names."""
        names = [tenant.name for tenant in found.tenants]
        check_names([name for name, _ in self.tables], names, "tenant of the trace")
        shared = next((name for name, table in self.tables if table.share is not None), None)
        if shared is not None:
            raise InputError(f"tenant '{shortened(shared)}' has a share, but the trace names its tenants; leave it out")
        given = {name: _tenant(name, table) for name, table in self.tables}
        return found._replace(tenants=tuple(given.get(tenant.name, tenant) for tenant in found.tenants))

    def _of_shares(self, table: RequestTable, seed: int) -> Tenancy:
        """By the number of the user or of the session, so that all turns are the same tenant's."""
        if self.tables[0][1].share is None:
            raise InputError("tenants have no shares, and the workload names no tenants; give each a share")
        first = table.first_turns()
        session = (np.cumsum(table.follows < 0) - 1)[first]
        start = float(hashed_uniforms(seed, "tenant", np.zeros(1, np.int64))[0])
        ends = np.cumsum([each.share or 0.0 for _, each in self.tables])[:-1]
        of = np.searchsorted(ends, (start + session * _GOLDEN) % 1.0, side="right").astype(np.int32)
        return Tenancy(tuple(_tenant(name, each) for name, each in self.tables), of)


def tenancy_of_names(names: Sequence[str], of: Int32Array) -> Tenancy | None:
    """Whose a trace's requests are, from names in any order and the number of each request's; None without names.

    Raises InputError for too many.
    """
    if not any(names):
        return None
    if len(names) > MOST_TENANTS:
        raise InputError(f"the trace names {len(names):,} tenants; at most {MOST_TENANTS:,} can be told apart")
    order = np.argsort(np.array(names), kind="stable")
    return Tenancy(tuple(Tenant(names[place]) for place in order), np.argsort(order)[of].astype(np.int32))


def _tenant(name: str, table: TenantTable) -> Tenant:
    limits = (math.inf if limit is None else float(limit) for limit in (table.rpm_limit, table.tpm_limit))
    return Tenant(name, *limits)


Given = str | Path | ReadJson


def read_tenants(given: Given) -> Tenants:
    """Tenants of a TOML file with a table `[tenants.NAME]` for each, or of a mapping by name. Raises InputError."""
    if isinstance(given, Mapping):
        return tenants_from_mapping(given, "tenants")
    content = read_toml(Path(given))
    unknown = [name for name in content if name != "tenants"]
    if unknown or "tenants" not in content:
        wrong = f"has '{shortened(unknown[0])}'" if unknown else "has no tenants"
        raise InputError(f"{shown(given)}: {wrong}; give a table [tenants.NAME] for each tenant, and nothing else")
    return tenants_from_mapping(content["tenants"], given)


def tenants_from_mapping(content: object, place: Path | str) -> Tenants:
    """By their names. Raises InputError."""
    tables = typed(content, _Tables, place, name="tenants")
    try:
        return Tenants(tables=tuple(sorted(tables.items())))
    except InputError as error:
        raise InputError(f"{shown(place)}: {error}") from None


def joined_tenancies(tables: Sequence[RequestTable]) -> list[RequestTable]:
    """The tables with the tenants of all, where any names some."""
    if all(table.tenancy is None for table in tables):
        return list(tables)
    unnamed = Tenant("")
    found = [table.tenancy or Tenancy((unnamed,), np.zeros(table.num_requests, np.int32)) for table in tables]
    every = tuple(sorted({tenant for each in found for tenant in each.tenants}))
    places = [np.array([every.index(tenant) for tenant in each.tenants], np.int32) for each in found]
    return [
        replace(table, tenancy=Tenancy(every, place[each.of]))
        for table, each, place in zip(tables, found, places, strict=True)
    ]
