"""The report's sections by subject, each a function; one of the user's own is a file with the names of `Shipped`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from files.documents import ReadJson
from headcount.views.report.parts import Part

Parts = Callable[[ReadJson], Iterator[Part]]


@dataclass(frozen=True)
class Shipped:
    """A section's title, its place in the report, which command fills it, and what it shows of an answer."""

    TITLE: str
    ORDER: int
    SHOWN_BY: str
    parts: Parts


SHIPPED: dict[str, Shipped] = {}


def section(title: str, order: int, shown_by: str) -> Callable[[Parts], Parts]:
    """Ships a function under its name."""

    def shipped(parts: Parts) -> Parts:
        SHIPPED[parts.__name__] = Shipped(title, order, shown_by, parts)
        return parts

    return shipped
