"""A regular expression for the lines of a log, of bounded time and memory: RE2's, which never backtracks."""

from collections.abc import Sequence
from typing import Any, Final

from files.names import shortened
from files.reading import InputError

MOST_INSTRUCTIONS: Final = 1_000  # RE2's time for a line is in proportion to them; a web server's whole line takes 130
_MOST_BYTES: Final = 2**18  # of RE2's memory for a pattern; larger ones are refused while they are compiled


class LogPattern:
    """`groups` are its named groups. Raises InputError for what is no expression, or too large a one."""

    def __init__(self, text: str) -> None:
        import re2  # noqa: PLC0415  few traces are logs

        options = re2.Options()
        options.max_mem, options.log_errors = _MOST_BYTES, False
        self.text = text
        try:
            self._compiled: Any = re2.compile(text, options)
        except UnicodeEncodeError:
            raise _unusable(text, "it is not UTF-8") from None
        except re2.error as error:
            raise _unusable(text, error.args[0].decode(errors="replace")) from None
        if self._compiled.programsize > MOST_INSTRUCTIONS:
            raise _unusable(text, "pattern too large")
        self.groups: dict[str, int] = dict(self._compiled.groupindex)

    def search(self, line: str, groups: Sequence[int]) -> list[str] | None:
        """What these groups match in a line; None where the line does not match."""
        found = self._compiled.search(line.encode())  # of bytes: twice as fast
        return None if found is None else [(found[group] or b"").decode().strip() for group in groups]


def _unusable(text: str, why: str) -> InputError:
    return InputError(
        f"log pattern {shortened(text)!r} is no regular expression of RE2: {shortened(why)}; use RE2's syntax, "
        "which has neither look-around nor back-references"
    )
