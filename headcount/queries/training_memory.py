"""Where does a GPU's memory go in training, and which is the smallest cluster that holds the run?"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from files.documents import Json
from headcount.diagnostics import Facts, find_diagnostics
from headcount.inputs.engine import TrainingInput
from headcount.inputs.question import question
from headcount.queries.result import Result, Verdict
from headcount.text.units import GIB, assumptions_json
from kvcache.memory.terms import gib_text
from kvcache.models.catalog import find_gpu, load_model
from kvcache.training.budget import TrainingBudget, training_budget
from kvcache.training.cluster import LARGEST_CLUSTER, SEARCHED, remedies, smallest_cluster
from kvcache.training.plan import TrainingPlan

Changes = tuple[tuple[str, Any], ...]  # (option, value) of what changes together; no value for a flag
DEFAULT = TrainingPlan()
SHORT = {"zero_stage": "--zero", "sequence_length": "--seq-len"}
PARTS = (
    ("weights", "weights_bytes"),
    ("gradients", "gradients_bytes"),
    ("optimizer states", "optimizer_bytes"),
    ("activations", "activations_bytes"),
    ("recomputed activations", "recomputed_bytes"),
    ("gathered weights", "gathered_bytes"),
    ("allowance", "allowance_bytes"),
)
PASSING = ("recomputed_bytes", "gathered_bytes", "allowance_bytes")  # not shown where there are none


def options_of(changes: Changes) -> list[str]:
    """As the command takes them."""
    return [str(word) for pair in changes for word in pair if word is not None]


def option_of(field: str) -> str:
    """The command's option for a field of the plan."""
    return SHORT.get(field, f"--{field.replace('_', '-')}")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class TrainingMemoryResult(Result):
    """One rank's memory; where it does not fit, what would, and the smallest cluster that was found."""

    kind = "training memory"
    view = "training_memory"
    budget: TrainingBudget
    cluster: TrainingBudget | None = None
    changes: tuple[Changes, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether each GPU holds its part."""
        return self.budget.fits

    def figures(self) -> Json:
        budget = self.budget
        names = (
            "num_parameters", "num_trainable_parameters", "stage", "in_flight_micro_batches", "fits", "missing_bytes",
            *(name for _, name in PARTS), "total_bytes", "gpu_memory_bytes",
        )  # fmt: skip
        return {
            "model": budget.model,
            "gpu": budget.gpu,
            **_layout_json(budget),
            **vars(budget.plan),
            **{name: getattr(budget, name) for name in names},
            "global_batch_size": budget.plan.global_batch_size,
            "changes_that_fit": [dict(change) for change in self.changes],
            "smallest_cluster": None if self.cluster is None else _layout_json(self.cluster),
            "assumptions": assumptions_json(budget.assumptions),
        }

    def rows(self) -> list[Json]:
        found = [(title, getattr(self.budget, name)) for title, name in self._shown]
        return [{"part": title, "bytes": size, "gib": size / GIB} for title, size in found]

    @property
    def _shown(self) -> list[tuple[str, str]]:
        parts = [(title, name) for title, name in PARTS if name not in PASSING or getattr(self.budget, name)]
        return [*parts, ("total", "total_bytes"), ("GPU memory", "gpu_memory_bytes")]


@question
def training_memory(
    model: str,
    gpu: str,
    *,
    num_gpus: int | None = None,
    searched: Collection[str] | None = None,
    training: TrainingInput = TrainingInput(),
) -> TrainingMemoryResult:
    """What a rank holds in training, whether it fits, and the smallest cluster that holds it.

    Settings are fields of TrainingPlan; with `num_gpus` the smallest cluster of at most so many is searched, among
    layouts of the sizes in `searched` (those that are left open unless given). Raises ValueError for a bad one.
    """
    plan: dict[str, Any] = dict(training.arguments)
    open_sizes = {name for name in SEARCHED if name not in plan} if searched is None else set(searched)
    if num_gpus and "data_parallel_size" in open_sizes:
        plan["data_parallel_size"] = plan.get("expert_parallel_size", 1)  # where the search starts
    return _answer(model, gpu, TrainingPlan(**plan), num_gpus, frozenset(SEARCHED) - open_sizes)


def _answer(model: str, gpu: str, plan: TrainingPlan, asked: int | None, fixed: frozenset[str]) -> TrainingMemoryResult:
    architecture, found = load_model(model), find_gpu(gpu)
    budget = training_budget(architecture, found, plan)
    most, cluster = asked or LARGEST_CLUSTER, None
    if asked or not budget.fits:
        kept = fixed if asked else frozenset[str]()
        cluster = smallest_cluster(architecture, found, plan, max_gpus=most, fixed=kept)
    if asked and cluster is not None:
        budget = cluster
    changes = () if budget.fits else tuple(_changes(plan, other) for other in remedies(architecture, found, plan))
    why_unfit = None if budget.fits else _shortfall(budget, cluster, changes, most)
    return TrainingMemoryResult(
        diagnostics=find_diagnostics(Facts(terms=budget.assumptions, why_unfit=why_unfit)),
        verdict=Verdict.DONE if budget.fits else Verdict.BAD_INPUT,
        budget=budget,
        cluster=cluster,
        changes=changes,
    )


def _layout_json(budget: TrainingBudget) -> dict[str, object]:
    names = (
        "num_gpus", "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "expert_parallel_size",
        "zero_stage",
    )  # fmt: skip
    return {name: getattr(budget.plan, name) for name in names} | {"total_bytes": budget.total_bytes}


def _shortfall(
    budget: TrainingBudget, cluster: TrainingBudget | None, changes: tuple[Changes, ...], max_gpus: int
) -> str:
    options = [" ".join(options_of(change)) for change in changes]
    told = [f"fits with {' or '.join(options)}"] if options else []
    if cluster is not None:
        told.append(f"unchanged, it needs {cluster.plan.num_gpus:,} GPUs ({cluster.plan.layout})")
    elif not told:
        told.append(f"no cluster of up to {max_gpus:,} GPUs holds it; shorten --seq-len")
    return (
        f"training {budget.model} does not fit on {budget.plan.num_gpus:,} × {budget.gpu} ({budget.plan.layout}): "
        f"{gib_text(budget.missing_bytes)} short per GPU; {'; '.join(told)}"
    )


def _changes(plan: TrainingPlan, other: TrainingPlan) -> Changes:
    """The options that differ."""
    differ = {name: value for name, value in vars(other).items() if value != getattr(plan, name)}
    return tuple((option_of(name), None if value is True else value) for name, value in differ.items())
