"""Cells of a column of CSV as numbers, dates or text: many at once, and one by one where they are written otherwise."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from files.names import shortened
from files.reading import InputError, shown
from workloads.requests import OPEN_END, BoolArray, FloatArray, IntArray

Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]
MARGIN: Final = b"\n" * 32
"""Before and after the text of a buffer, so that eight characters can be read anywhere."""
MOST_NUMBER: Final = 1e15
_TEN: Final = 10.0 ** np.arange(23)
_TENS: Final = 10 ** np.arange(10)
_ZEROS, _HIGH, _SIX = (np.uint64(int(byte * 8, 16)) for byte in ("30", "f0", "06"))  # of eight characters
_COLON_PLACES, _COLONS, _LOW = np.uint64(0xFF0000FF0000), np.uint64(0x3A00003A0000), np.uint64(15)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_DATE: Final = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,30}))? ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_LOG_DATE: Final = "%d/%b/%Y:%H:%M:%S %z"  # of web servers' access logs
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_YEAR: Final = 2199
A_NUMBER: Final = "a number, at least 0"
A_WHOLE: Final = "a whole number from -2,147,483,648 to 2,147,483,647"
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


@dataclass(frozen=True, kw_only=True)
class Cells:
    """One column of some rows; cell i is buffer[start[i]:end[i]]. What is wrong raises InputError with its line."""

    path: Path
    name: str
    first_line: int
    buffer: Bytes
    start: IntArray
    end: IntArray
    lines: Sequence[int] | None = None
    """Of each row, if not one after another."""

    def __len__(self) -> int:
        return len(self.start)

    def place(self, row: int) -> str:
        return f"line {self.first_line + row if self.lines is None else self.lines[row]}"

    def text(self, row: int) -> str:
        return self.buffer[self.start[row] : self.end[row]].tobytes().decode().strip()

    def texts(self) -> list[str]:
        whole = self.buffer.tobytes()
        return [
            whole[start:end].decode().strip() for start, end in zip(self.start.tolist(), self.end.tolist(), strict=True)
        ]

    def tokens(self, *, least: int = 1) -> IntArray:
        """Whole numbers of tokens."""
        found, read = _whole(self.buffer, self.start, self.end, 10)
        read &= (found >= least) & (found < OPEN_END)
        self._read_rest(found, read, lambda text: read_tokens(text, least), tokens_in_words(least))
        return found

    def numbers(self, *, may_lack: bool = False) -> FloatArray:
        """Finite numbers of at least 0; where they `may_lack`, an empty cell is NaN."""
        found, read = _decimal(self.buffer, self.start, self.end)
        if may_lack:
            is_empty = self.start == self.end
            found[is_empty], read = np.nan, read | is_empty
        self._read_rest(found, read, read_number, A_NUMBER)
        return found

    def whole(self) -> IntArray:
        """Whole numbers of either sign."""
        found, read = _whole(self.buffer, self.start, self.end, 9)
        self._read_rest(found, read, read_whole, A_WHOLE)
        return found

    def nanoseconds(self, zones: Zones, *, may_lack: bool = False) -> IntArray:
        """Dates as nanoseconds since 1970, -1 for an empty cell."""
        found, read, has_zone = _dates(self.buffer, self.start, self.end)
        is_empty = (self.start == self.end) & may_lack
        found[is_empty] = -1
        for row in np.flatnonzero(~read & ~is_empty).tolist():
            has_zone[row] = names_zone(self.text(row))
        self._read_rest(found, read | is_empty, read_nanoseconds, A_DATE)
        mixed = ~is_empty & ~zones.are_alike(has_zone, is_empty)
        if mixed.any():
            raise self.refuse(int(np.argmax(mixed)), ONE_ZONE)
        return found

    def lists(self) -> list[list[int] | None]:
        raise self.refuse(0, "a list, which only Parquet holds")

    def _read_rest(
        self, found: IntArray | FloatArray, is_read: BoolArray, read_one: Callable[[str], float | None], allowed: str
    ) -> None:
        """Put in place what could not be read at once."""
        for row in np.flatnonzero(~is_read).tolist():
            value = read_one(self.text(row))
            if value is None:
                raise self.refuse(row, allowed)
            found[row] = value

    def refuse(self, row: int, allowed: str) -> InputError:
        found = self.text(row)
        value = repr(shortened(found)) if found else "empty"
        return InputError(f"{shown(self.path)}, {self.place(row)}: {self.name} is {value}; it must be {allowed}")


def tokens_in_words(least: int) -> str:
    """What a number of tokens must be."""
    return f"a whole number of tokens, at least {least}"


def read_number(text: str) -> float | None:
    """A finite number of at least 0, else None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= MOST_NUMBER and text.isascii() and "_" not in text else None


def read_tokens(text: str, least: int = 1) -> int | None:
    """A whole number of tokens, else None."""
    value = read_number(text)
    return int(value) if value is not None and value == int(value) and least <= value < OPEN_END else None


def read_whole(text: str) -> int | None:
    """A whole number of 32 bits, 0 where there is no text, else None."""
    if not text:
        return 0
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -(2**31) <= value < 2**31 else None


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
    seconds = (whole - offset - _EPOCH) // timedelta(seconds=1)
    return (
        seconds * 10**9 + int(f"{fraction or ''}000000000"[:9]) if seconds >= 0 and whole.year <= _LAST_YEAR else None
    )


def names_zone(text: str) -> bool:
    """Whether a date says its time zone, as those of access logs always do."""
    found = _DATE.fullmatch(text)
    return found is None or found[4] is not None


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


def _eight(buffer: Bytes, place: IntArray) -> Words:
    """The eight characters that begin at each place, the first in the lowest bits: of two words that are aligned."""
    words: Words = buffer[: len(buffer) & ~7].view("<u8")
    word, bits = place >> 3, (place & 7).astype(np.uint64) << np.uint64(3)
    found: Words = words[word] >> bits | words[word + 1] << np.uint64(1) << (np.uint64(63) - bits)
    return found


def _whole(buffer: Bytes, start: IntArray, end: IntArray, most_digits: int) -> tuple[IntArray, BoolArray]:
    """The number that a cell of digits alone is, and which cells are such; 18 digits at most.

    Eight digits are one word of 64 bits; neighbours are put together in pairs, fours, eights.
    """
    width = end - start
    others = np.uint64(64) - (np.clip(width, 1, 8) << 3).astype(np.uint64)  # bits of what is not in the cell
    word = (_eight(buffer, end - 8) >> others) << others | (_ZEROS >> np.uint64(8)) >> (np.uint64(56) - others)
    read: BoolArray = (word & _HIGH == _ZEROS) & (word + _SIX & _HIGH == _ZEROS) & (width >= 1) & (width <= most_digits)
    pairs = (word - _ZEROS) * np.uint64(2561) >> np.uint64(8)
    fours = (pairs & _PAIRS) * np.uint64(6553601) >> np.uint64(16)
    found = ((fours & _FOURS) * np.uint64(42949672960001) >> np.uint64(32)).astype(np.int64)
    if most_digits > 8 and (is_long := width > 8).any():
        high, read_high = _whole(buffer, start, np.maximum(end - 8, start + 1), most_digits - 8)
        found = np.where(is_long, high * 10**8 + found, found)
        read &= read_high | ~is_long
    return found, read


def _decimal(buffer: Bytes, start: IntArray, end: IntArray) -> tuple[FloatArray, BoolArray]:
    """Digits, perhaps with a point among them; 15 digits at most, so that the quotient is the number nearest to it."""
    point = end.copy()
    found = np.flatnonzero(buffer == ord("."))
    if len(found):
        place = found[np.minimum(np.searchsorted(found, start), len(found) - 1)]
        point = np.where((place >= start) & (place < end), place, end)
    decimals = np.maximum(end - point - 1, 0)
    whole, read = _whole(buffer, start, point, 15)
    fraction, has_fraction = _whole(buffer, np.minimum(point + 1, end), end, 15)
    read &= (has_fraction | (point == end)) & (point - start + decimals <= 15)
    decimals = np.minimum(decimals, 15)
    return (whole * 10**decimals + np.where(decimals > 0, fraction, 0)) / _TEN[decimals], read


def _dates(buffer: Bytes, start: IntArray, end: IntArray) -> tuple[IntArray, BoolArray, BoolArray]:
    """Nanoseconds since 1970, which cells are such dates, and which of them name a zone."""
    day, is_day = _days(buffer, start)
    second, is_time = _clock(_eight(buffer, start + 11))
    fraction, zone_s, is_end, has_zone = _after_seconds(buffer, start + 19, end)
    read = is_day & is_time & is_end & (end - start >= 19)
    return (day * 86_400 + second - zone_s) * 10**9 + fraction, read, has_zone


def _clock(word: Words) -> tuple[IntArray, BoolArray]:
    """Seconds of the day that eight characters such as 18:15:46 say, and which are such."""
    digits = word & ~_COLON_PLACES | _ZEROS & _COLON_PLACES
    read: BoolArray = (word & _COLON_PLACES == _COLONS) & (digits & _HIGH == _ZEROS) & (digits + _SIX & _HIGH == _ZEROS)
    hour, minute, second = (
        (digits >> np.uint64(at) & _LOW).astype(np.int64) * 10 + (digits >> np.uint64(at + 8) & _LOW).astype(np.int64)
        for at in (0, 24, 48)
    )
    return (hour * 60 + minute) * 60 + second, read & (hour < 24) & (minute < 60) & (second < 60)


def _after_seconds(buffer: Bytes, start: IntArray, end: IntArray) -> tuple[IntArray, IntArray, BoolArray, BoolArray]:
    """Nanoseconds, the zone's seconds, whether they could be read, whether there is a zone."""
    tail = _eight(buffer, end - 8) >> np.uint64(16)  # the last six characters
    is_utc = (tail >> np.uint64(40) == ord("Z")) & (end > start)
    sign = tail & np.uint64(0xFF)
    is_offset = ((sign == ord("+")) | (sign == ord("-"))) & (end >= start + 6)
    zone_s, read = _offsets(tail, is_offset)
    fraction_end = end - is_utc - 6 * is_offset
    digits = fraction_end - start - 1
    fraction, is_fraction = _whole(buffer, start + 1, fraction_end, 9)
    read = read & ((is_fraction & (buffer[start] == ord("."))) | (digits == -1))
    return np.where(digits > 0, fraction * _TENS[np.clip(9 - digits, 0, 9)], 0), zone_s, read, is_utc | is_offset


def _offsets(tail: Words, is_offset: BoolArray) -> tuple[IntArray, BoolArray]:
    """Seconds that six characters such as +02:00 say, 0 where they are none, and which could be read."""
    told = np.where(is_offset, tail, 0)
    if (told == told[0]).all():
        known, place = told[:1], np.zeros(len(told), np.int64)
    else:
        known, place = np.unique(told, return_inverse=True)
    texts = [int(word).to_bytes(8, "little")[:6].decode("latin-1") for word in known]
    found = [_offset(text) if re.fullmatch(r"[+-]\d\d:\d\d", text, re.ASCII) else None for text in texts]
    seconds = np.array([0 if each is None else each // timedelta(seconds=1) for each in found], np.int64)
    is_known = np.array([each is not None for each in found])
    return seconds[place], is_known[place] | ~is_offset


def _days(buffer: Bytes, start: IntArray) -> tuple[IntArray, BoolArray]:
    """Days since 1970 of dates such as 2023-11-16 and the character after them, and which of them are days."""
    first, second = _eight(buffer, start), _eight(buffer, start + 8) & np.uint64(0xFFFFFF)
    changes = np.flatnonzero((first[1:] != first[:-1]) | (second[1:] != second[:-1])) + 1
    begins = np.concatenate([[0], changes])
    days = [_day(*text) for text in zip(first[begins].tolist(), second[begins].tolist(), strict=True)]
    found = np.repeat(np.array(days, np.int64), np.diff(begins, append=len(start)))
    return found, found >= 0


@lru_cache(maxsize=4096)
def _day(first: int, second: int) -> int:
    """Days since 1970, -1 for what is none; the characters as numbers of 8 and 3 bytes."""
    text = (first.to_bytes(8, "little") + second.to_bytes(3, "little")).decode("latin-1")
    found = _date(text[:10], "%Y-%m-%d") if re.fullmatch(r"\d{4}-\d\d-\d\d[ T]", text, re.ASCII) else None
    return (found - _EPOCH).days if found is not None and 1970 <= found.year <= _LAST_YEAR else -1
