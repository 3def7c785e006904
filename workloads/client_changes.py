"""Other clients than a workload's own: how long they wait, how often they try again."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from msgspec import structs

from files.names import check_names
from files.reading import InputError
from workloads.clients import LIBRARY_TIMEOUT_S, MOST_RETRIES, WAIT_FOR_EVER, Clients
from workloads.distributions import Exponential
from workloads.populations.derived import scaled
from workloads.traffic_changes import CHANGES, Amount


def _patience(clients: Clients, amount: Amount) -> Clients:
    patience_s = clients.patience_s
    if patience_s is None and amount.is_factor:
        raise InputError(f"patience {amount}: everybody waits forever; give a mean time, such as patience=20s")
    if patience_s is None:
        return replace(clients, patience_s=Exponential(mean_value=_above_zero("patience", amount)))
    return replace(clients, patience_s=scaled(patience_s, amount.factor_of(patience_s.mean(), "patience")))


def _client_timeout(clients: Clients, amount: Amount) -> Clients:
    timeout_s = amount.value
    if amount.is_factor:
        timeout_s *= clients.library.timeout_s
        if timeout_s == math.inf:
            raise InputError(f"client-timeout {amount}: there is none; give a time, such as client-timeout=60s")
    _above_zero("client-timeout", amount)
    return replace(clients, library=structs.replace(clients.library, timeout_s=timeout_s))


def _retries(clients: Clients, amount: Amount) -> Clients:
    library, retries = clients.library, amount.value
    if amount.is_factor or retries != int(retries) or not 0 <= retries <= MOST_RETRIES:
        raise InputError(f"retries={amount}; give a whole number from 0 to {MOST_RETRIES}")
    timeout_s = LIBRARY_TIMEOUT_S if library.timeout_s == math.inf else library.timeout_s
    return replace(clients, library=structs.replace(library, retries=int(retries), timeout_s=timeout_s))


def _above_zero(name: str, amount: Amount) -> float:
    if not amount.value > 0:
        raise InputError(f"{name}={amount}; give a time above 0, or leave it out")
    return amount.value


CLIENT_CHANGES: Final[Mapping[str, Callable[[Clients, Amount], Clients]]] = {
    "patience": _patience,
    "client-timeout": _client_timeout,
    "retries": _retries,
}
"""In the order in which they are made: retries alone have the time-out of a library."""


def changed_clients(changes: Mapping[str, Amount], load: str) -> Clients:
    """Those of a load of fixed lengths, which nothing else of traffic changes. Raises InputError for what would."""
    check_names(changes, CHANGES, "change of traffic")
    other = next((name for name in changes if name not in CLIENT_CHANGES), None)
    if other is not None:
        raise InputError(f"{other} cannot be changed with {load}; it takes {', '.join(CLIENT_CHANGES)}")
    clients = WAIT_FOR_EVER
    for name, change in CLIENT_CHANGES.items():
        if name in changes:
            clients = change(clients, changes[name])
    return clients
