"""Dates of a file of JSON, one at a time."""

from files.names import shortened
from workloads.formats.parsing.cells import A_DATE, ONE_ZONE, names_zone, read_nanoseconds
from workloads.formats.parsing.rows import Rows


class Dates:
    """Either all of a file's dates have a time zone, or none."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._have_zone: bool | None = None

    def nanoseconds(self, place: str, name: str, text: str) -> int:
        """Since 1970. Raises InputError that names the place."""
        found, has_zone = read_nanoseconds(text), names_zone(text)
        self._have_zone = has_zone if self._have_zone is None else self._have_zone
        if found is None or has_zone != self._have_zone:
            allowed = A_DATE if found is None else ONE_ZONE
            raise self._rows.refuse(place, f"{name} is {shortened(text)!r}; it must be {allowed}")
        return found
