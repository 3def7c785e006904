"""Dates of a file: NumPy reads those that are written alike, many at once; `strptime` reads the others, one by one.

Not pandas: it takes days alone and dates that lost a digit, which are refused here, and takes three times as long.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from typing import Final

import numpy as np
import numpy.typing as npt

from files.names import shortened
from workloads.formats.parsing.rows import Rows
from workloads.requests import BoolArray, IntArray

_ZONE: Final = r" ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)"
_DATE: Final = re.compile(
    rf"(\d{{4}}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{{1,30}}))?(?: ?|{_ZONE})", re.ASCII | re.IGNORECASE
)
_DIGITS: Final = bytes.maketrans(b"123456789", b"000000000")
_FORM: Final = re.compile(rb"0000-00-00[T ]00:00:00(\.0{1,9})?")
_LOOKED_AT: Final = 1000  # dates, for the forms that a file has; one in another form is read alone
_SECONDS: Final = len("2023-11-16 18:15:46")
_MOST: Final = len("2023-11-16 18:15:46.680590000")
_LOG_DATE: Final = "%d/%b/%Y:%H:%M:%S %z"  # of web servers' access logs
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 2199
_NO_ZONE: Final = "0123456789.,"
A_DATE: Final = "a date such as 2023-11-16 18:15:46.6805900"
ONE_ZONE: Final = "with a time zone in all rows or in none"


@dataclass
class Zones:
    """Whether the dates of a file have a time zone: all of them, or none."""

    are_told: bool | None = None
    """Of the first date."""

    def are_alike(self, has_zone: BoolArray, is_empty: BoolArray) -> BoolArray:
        """[n] which of these dates are as the first of the file."""
        if self.are_told is None and not is_empty.all():
            self.are_told = bool(has_zone[np.argmin(is_empty)])
        alike: BoolArray = has_zone == self.are_told
        return alike


class Dates:
    """Those of a file of JSON, one at a time: either all of them have a time zone, or none."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._have_zone: bool | None = None

    def nanoseconds(self, place: str, name: str, text: str) -> int:
        """Since 1970. Raises InputError that names the place."""
        found, has_zone = read_nanoseconds(text), zone_of(text) != ""
        self._have_zone = has_zone if self._have_zone is None else self._have_zone
        if found is None or has_zone != self._have_zone:
            allowed = A_DATE if found is None else ONE_ZONE
            raise self._rows.refuse(place, f"{name} is {shortened(text)!r}; it must be {allowed}")
        return found


def nanoseconds(texts: Sequence[str]) -> tuple[IntArray, BoolArray]:
    """Dates as `read_nanoseconds` has them, -1 for what is none, and which of them name a zone."""
    zone = zone_of(next(filter(None, texts), ""))
    zone = zone if re.fullmatch(_ZONE, zone, re.ASCII) else ""
    bodies = [text.removesuffix(zone) for text in texts] if zone else texts
    try:
        read = np.array(bodies, f"S{_MOST + 1}")
    except UnicodeEncodeError:
        read = np.zeros(len(texts), f"S{_MOST + 1}")
    is_alike = _are_plain(read)
    if zone:
        is_alike &= np.fromiter(map(str.endswith, texts, repeat(zone)), np.bool_, len(texts))
    found = np.full(len(texts), -1)
    try:
        found[is_alike] = read[is_alike].astype("M8[ns]").astype(np.int64)
        found[is_alike] -= _offset(zone or "Z") // timedelta(seconds=1) * 10**9
    except ValueError:  # a thirteenth month
        is_alike[:] = False
    has_zone = is_alike & (zone != "")
    for row in np.flatnonzero(~is_alike).tolist():
        one = read_nanoseconds(texts[row])
        found[row], has_zone[row] = -1 if one is None else one, zone_of(texts[row]) != ""
    return np.maximum(found, -1), has_zone


def _are_plain(dates: npt.NDArray[np.bytes_]) -> BoolArray:
    """[n] which have seconds, perhaps decimals, and no zone: NumPy takes `now` and days alone for dates, too."""
    forms = np.frombuffer(dates.tobytes().translate(_DIGITS), dates.dtype)
    known = [form for form in set(forms[:_LOOKED_AT].tolist()) if _FORM.fullmatch(form)]
    year = dates.astype("S4")
    is_plain: BoolArray = np.isin(forms, np.array(known, dates.dtype))
    return is_plain & (year >= b"%d" % _EPOCH.year) & (year <= b"%d" % _LAST_YEAR)


def read_nanoseconds(text: str) -> int | None:
    """A date from 1970 to 2199 as nanoseconds since 1970, UTC where it names no zone, else None."""
    if (found := _DATE.fullmatch(text)) is not None:
        day, time, fraction, zone = found.groups()
        whole = _date(f"{day}T{time}", "%Y-%m-%dT%H:%M:%S")
        offset = _offset(zone or "Z")
    else:
        whole, fraction, offset = _date(text, _LOG_DATE), "", timedelta()
    if whole is None:
        return None
    seconds = (whole - _EPOCH - offset) // timedelta(seconds=1)
    return (
        seconds * 10**9 + int(f"{fraction or ''}000000000"[:9]) if seconds >= 0 and whole.year <= _LAST_YEAR else None
    )


def zone_of(text: str) -> str:
    """What a date says of its time zone; those of access logs always have one."""
    return text[_SECONDS:].lstrip(_NO_ZONE)


def _date(text: str, form: str) -> datetime | None:
    try:
        found = datetime.strptime(text, form)
    except ValueError:
        return None
    return found.replace(tzinfo=found.tzinfo or UTC)


def _offset(zone: str) -> timedelta:
    if zone[0] not in "+-":
        return timedelta()
    digits = zone[1:].replace(":", "")
    return int(f"{zone[0]}1") * timedelta(hours=int(digits[:2]), minutes=int(digits[2:] or 0))
