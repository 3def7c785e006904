"""What a report tells."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.text.answer_notes import layout_text
from simulator.deployment import ReplicaPlan
from simulator.study.capacity import Point
from simulator.study.capacity_table import CapacityQuestion, CapacityRow, best_row
from simulator.study.slo import SLO


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A capacity question with its answer, one row per GPU count."""

    question: CapacityQuestion
    rows: tuple[CapacityRow, ...]
    workload_name: str  # as asked for: a preset or a path
    command: str  # that repeats the run, ready for a shell

    @property
    def served(self) -> tuple["Served", ...]:
        """The GPU counts that serve somebody, fewest GPUs first."""
        found = [Served(row, row.point, row.plan) for row in self.rows if row.users and row.point and row.plan]
        return tuple(sorted(found, key=lambda served: served.row.gpus))

    @property
    def largest(self) -> "Served | None":
        """The most GPUs that serve somebody: what the charts of one deployment show."""
        return self.served[-1] if self.served else None

    @property
    def best(self) -> CapacityRow | None:
        """The row whose number leads; None where nobody is served."""
        best = best_row(self.rows)
        return best if best.users else None

    @property
    def plans(self) -> tuple[ReplicaPlan, ...]:
        """One per layout of a replica, by TP."""
        by_tp = {row.plan.tensor_parallel_size: row.plan for row in self.rows if row.plan is not None}
        return tuple(by_tp[tp] for tp in sorted(by_tp))


@dataclass(frozen=True)
class Served:
    """A row that has been simulated at its number of users."""

    row: CapacityRow
    point: Point
    plan: ReplicaPlan

    @property
    def deployment(self) -> str:
        """Such as `8 GPUs, 4 × TP2`."""
        return f"{gpus_text(self.row.gpus)}, {layout_text(self.row.replicas, self.row.tp, self.row.dp)}"


def command_line(arguments: Sequence[str] | None = None) -> str:
    """The command that repeats this run; by default this process's, without the program's path."""
    return shlex.join(["headcount", *(sys.argv[1:] if arguments is None else arguments)])


def gpus_text(count: int) -> str:
    return "1 GPU" if count == 1 else f"{count:,} GPUs"


def users_text(count: int) -> str:
    return "1 user" if count == 1 else f"{count:,} users"


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def slo_text(slo: SLO) -> str:
    """The SLO in words that need no glossary."""
    limits = [f"a time to first token (TTFT) of at most {slo.ttft_s:g} s"] if slo.ttft_s is not None else []
    limits += [f"a time per output token (TPOT) of at most {slo.tpot_s * 1e3:g} ms"] if slo.tpot_s is not None else []
    return f"{percent(slo.attainment)} of requests have " + " and ".join(limits)


def percent(share: float) -> str:
    """Up to four significant digits: `99.5 %`."""
    return f"{100 * share:.4g} %"


def weights_text(plan: ReplicaPlan) -> str:
    """The weights' format; `none` alone would not say which."""
    name = plan.budget.quantization
    return f"{plan.architecture.dtype} (not quantized)" if name == "none" else name


def kv_cache_text(plan: ReplicaPlan) -> str:
    """The KV cache's format; `auto` alone would not say which."""
    name = plan.budget.kv_cache_dtype
    return f"{plan.architecture.dtype} (auto)" if name == "auto" else name
