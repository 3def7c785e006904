"""How prefill and decode pools are written: `prefill=2,decode=6`, `prefill=2xtp1,decode=2xtp4`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from files.errors import HeadcountError
from files.names import check_names, shortened

SERVE, PREFILL, DECODE = ROLES = ("serve", "prefill", "decode")  # a pool that serves does both
TOGETHER = "together"
"""Among pools that are compared: every engine does both."""
MOST_ENGINES = 4096
_SIZE = re.compile(r"^(?:tp)?([0-9]{1,3})$", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"^([0-9]{1,4})(?:xtp([0-9]{1,3}))?$", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Part:
    """Engines that are alike: how many, and how many GPUs each has."""

    engines: int
    tensor_parallel_size: int | None = None  # None: the one that holds for both pools


@dataclass(frozen=True)
class PoolSizes:
    """Engines of both pools, each with as many GPUs as its tensor-parallel size."""

    name: str = "prefill=N,decode=N"

    def read(self, given: object) -> dict[str, Part]:
        if isinstance(given, Mapping):
            found = {role: part if isinstance(part, Part) else read_part(str(part)) for role, part in given.items()}
        else:
            pairs = [part.partition("=") for part in str(given).split(",")]
            found = {role.strip().lower(): read_part(value.strip()) for role, _, value in pairs}
            if len(found) < len(pairs):
                raise HeadcountError(f"'{shortened(str(given))}' gives a pool twice; give prefill=N,decode=N")
        check_names(found, (PREFILL, DECODE), "pool")
        if len(found) < 2:
            raise HeadcountError(f"'{shortened(str(given))}' lacks a pool; give both, such as prefill=2,decode=6")
        return found


@dataclass(frozen=True)
class ComparedPools:
    """Pools beside others, in words; TOGETHER among them."""

    name: str = "prefill=N,decode=N"

    def read(self, given: object) -> str:
        text = str(given).strip()
        if text != TOGETHER:
            PoolSizes().read(text)
        return text


@dataclass(frozen=True)
class PoolChoices:
    """Tensor-parallel sizes of both pools to choose from; of a pool without any, every one that fits."""

    name: str = "prefill,decode"

    def read(self, given: object) -> dict[str, tuple[int, ...]]:
        if isinstance(given, Mapping):
            found = {role: tuple(map(_size, sizes)) for role, sizes in given.items()}
        else:
            pairs = [part.partition("=") for part in str(given).split(",")]
            found = {
                role.strip().lower(): tuple(map(_size, sizes.split("/"))) if equals else ()
                for role, equals, sizes in pairs
            }
        check_names(found, (PREFILL, DECODE), "pool")
        if len(found) < 2:
            raise HeadcountError(
                f"'{shortened(str(given))}' lacks a pool; give both: prefill,decode or prefill=tp1,decode=tp1/tp2"
            )
        return found


def _size(given: object) -> int:
    match = _SIZE.match(str(given).strip())
    if not match or not int(match[1]):
        raise HeadcountError(f"'{shortened(str(given))}' is no tensor-parallel size; give such as tp2, or tp1/tp2/tp4")
    return int(match[1])


def read_part(text: str) -> Part:
    """`2` or `2xtp4`. Raises HeadcountError for any other form."""
    match = _PART.match(text)
    engines = int(match[1]) if match else 0
    size = int(match[2]) if match and match[2] else None
    if not 0 < engines <= MOST_ENGINES or size == 0:
        raise HeadcountError(
            f"'{shortened(text)}' is no number of engines; give such as 6, or 2xtp4 for 2 engines of 4 GPUs each"
        )
    return Part(engines=engines, tensor_parallel_size=size)
