"""Finished simulations in the cache folder."""

from pathlib import Path

from files.cache.row_store import RowStore
from files.errors import HeadcountError
from simulator.study.replication import Replication
from simulator.study.store.encoding import decode, encode

Store = RowStore[Replication]


def kept_simulations(base: Path | None = None) -> Store:
    """The store in that cache folder, by default the user's."""
    return RowStore("simulations", encode, _replication, base)


def _replication(content: bytes) -> Replication:
    found = decode(content)
    if not isinstance(found, Replication):
        raise HeadcountError("no simulation")
    return found
