"""Arguments by the names of others: an engine's, with the start-up log of a server that has them, and a trainer's."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING

from files.arguments import check_argument
from files.names import check_names
from headcount.inputs.reading.deployments import ENGINE_ARGUMENTS, ModelOnGPU, resolve_model_and_gpu
from simulator.engines.engines import under_our_names

if TYPE_CHECKING:
    from calibrate.readers.parsing.startup_log import StartupLog


@cache
def training_settings() -> frozenset[str]:
    """The names of a training run's settings."""
    from kvcache.training.plan import TrainingPlan  # noqa: PLC0415  imported where one is asked for

    return frozenset(item.name for item in fields(TrainingPlan))


@dataclass(frozen=True, kw_only=True)
class EngineInput:
    """Arguments of vLLM or SGLang under their own names; what is None has the engine's default."""

    arguments: Mapping[str, object] = field(default_factory=dict)
    """Their types, ranges and defaults are those of `EngineArgs` and `SGLangArgs`; of some questions a list of each."""
    startup_log: "StartupLog | None" = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", under_our_names(self.arguments))
        check_names(self.arguments, ENGINE_ARGUMENTS, "engine argument")
        if self.startup_log is not None:
            from calibrate.readers.parsing.startup_log import StartupLog  # noqa: PLC0415  imported where it is given

            check_argument("startup_log", self.startup_log, StartupLog | None)

    def on(self, model: str, gpu: str) -> ModelOnGPU:
        """The model on the GPU with these arguments. Raises HeadcountError for what is not known."""
        return resolve_model_and_gpu(model, gpu, self.arguments, self.startup_log)

    def without(self, *names: str) -> "EngineInput":
        """The same without some arguments, which something else has."""
        kept = {name: value for name, value in self.arguments.items() if name not in names}
        return EngineInput(arguments=kept, startup_log=self.startup_log)


@dataclass(frozen=True, kw_only=True)
class TrainingInput:
    """What is not given has the plan's default, or is searched."""

    arguments: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_names(self.arguments, training_settings(), "training setting")
