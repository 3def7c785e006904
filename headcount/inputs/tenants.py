"""A load whose users or requests belong to tenants."""

from dataclasses import replace
from typing import TypeVar

from files.errors import HeadcountError
from workloads.clients import Clients
from workloads.populations.population import Population
from workloads.tenants import Given, read_tenants
from workloads.traces.trace import Trace

Load = TypeVar("Load", Population, Trace)


def with_tenants(load: Load, given: Given | None) -> Load:
    """The users or the trace with these tenants; None: with its own."""
    if given is None:
        return load
    if isinstance(load, Population):
        return replace(load, clients=replace(load.clients, tenants=read_tenants(given)))
    return replace(load, clients=of_tenants(load.clients, given))


def of_tenants(clients: Clients, given: Given) -> Clients:
    """Those of a load whose prompts are given as a whole."""
    tenants = read_tenants(given)
    if tenants.longest_system_prompt:
        raise HeadcountError("system_prompt_tokens of a tenant needs a population with users; leave it out")
    return replace(clients, tenants=tenants)
