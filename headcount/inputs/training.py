"""How a model is trained: settings as they are given, by the names of `TrainingPlan`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from files.names import check_names
from kvcache.training.plan import TrainingPlan

SETTINGS = frozenset(item.name for item in fields(TrainingPlan))


@dataclass(frozen=True, kw_only=True)
class TrainingInput:
    """What is not given has the plan's default, or is searched."""

    arguments: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.arguments, SETTINGS, "training setting")
