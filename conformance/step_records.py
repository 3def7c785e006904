"""What a probe tells of vLLM's steps, and where ours differ from them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any

from conformance.probing import Record
from simulator.engines.vllm.engine import EngineConfig

COMPARED = ("scheduled", "new", "resumed", "preempted", "finished", "free_blocks", "running", "waiting")
OF_IMAGES = ("encoded", "embeddings", "free_slots")  # of cases with images
BY_REQUEST = ("scheduled", "new", "resumed", "encoded")  # tokens by request, in the order of the batch


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The first step at which two schedules part; None where one of them made no such call."""

    case: int
    engine: dict[str, Any]
    of: str  # whose schedule is beside vLLM's
    ours: Record | None
    vllm: Record | None

    def lines(self) -> list[str]:
        """As text: the case, and what each side decided."""
        head = f"first difference, case {self.case}: {self.engine}"
        return [head, f"  {self.of}: {self.ours}", f"  vLLM: {self.vllm}"]


def counts_json(counts: Mapping[str, Any], differences: Sequence[Difference]) -> dict[str, Any]:
    """What a comparison counted, in how many cases it differs, and the first of these."""
    return {name: value for name, value in counts.items() if name != "differences"} | {
        "differing_cases": len(differences),
        "first_difference": asdict(differences[0]) if differences else None,
    }


def first_difference(
    engine: EngineConfig, ours: Sequence[Record], theirs: Sequence[Record], *, of: str, case: int = 0
) -> Difference | None:
    """The first `schedule()` call that was decided otherwise: in whom, in how many tokens, or in which order.

    Fields that our records have not are not compared.
    """
    for one, other in zip_longest(ours, theirs):
        if (
            one is None
            or other is None
            or any(_ordered(one[name]) != _ordered(other[name]) for name in _shared(one, other))
        ):
            return Difference(case=case, engine=asdict(engine), of=of, ours=one, vllm=other)
    return None


def _shared(ours: Record, theirs: Record) -> list[str]:
    of_images = [name for name in OF_IMAGES if name in ours and name in theirs]
    return [name for name in COMPARED if name in ours] + of_images


def _ordered(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def num_prefix_hits(steps: Sequence[Record], entered: str = "new") -> int:
    """Requests that entered, or were resumed, with a prefix hit."""
    return sum(computed > 0 for step in steps for computed in step[entered].values())


def read_record(record: Record) -> Record:
    """A record as JSON brought it, with requests as numbers again."""
    by_request = {name: record[name] for name in BY_REQUEST if name in record}
    return record | {name: {int(row): tokens for row, tokens in found.items()} for name, found in by_request.items()}
