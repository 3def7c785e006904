"""A file that is written."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from files.outputs import check_out_file
from simulator.engines import values


@dataclass(frozen=True)
class OutPath:
    """Its name, which may have to end in one of some suffixes, or to pass a check of its own."""

    name: str = "PATH"
    suffixes: tuple[str, ...] = ()
    example: str = ""
    own_check: Callable[[str, Path], None] | None = None

    def read(self, given: object) -> Path:
        return values.FilePath().read(given)

    def check(self, option: str, path: Path) -> None:
        """Raise HeadcountError, before the work, where it could not be written after it."""
        if self.own_check is not None:
            self.own_check(option, path)
        else:
            check_out_file(option, path, self.suffixes, self.example)
