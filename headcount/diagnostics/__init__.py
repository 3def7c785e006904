"""What an answer's reader should know of it.

A diagnostic has `SEVERITY` and `find(facts)`, which yields a text and its source each time it applies; its name is its
code. One with `REMEDY`, what to do about it, is refused under --strict. Those in `shipped` are functions; one of your
own is a file in `diagnostics/` of a folder in HEADCOUNT_PATH, with these three names.
"""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from files.errors import HeadcountError
from files.registry import Registry
from files.schema import typed
from simulator.engines.engines import SGLANG, VLLM, engine_of

if TYPE_CHECKING:
    from headcount.inputs.reading.deployments import ModelOnGPU
    from kvcache.shape.architecture import Architecture
    from simulator.cancellations import Cancellations
    from simulator.deployment import Deployment
    from simulator.engines.engines import AnyArgs
    from simulator.engines.vllm.speculation import Speculation
    from simulator.latency.model import AverageStep
    from simulator.study.capacity_row import CapacityRow
    from workloads.effects import TrafficEffects

DIAGNOSTICS = Registry(
    what="diagnostic", section="diagnostics", folder=Path(__file__).parent, ignored=("shipped.py",), package=__name__,
    needs=("SEVERITY", "find"),
)  # fmt: skip
"""Those of the user's own."""
_LONGER = {  # what raises a model's context length, and what makes the engine go beyond it
    VLLM: ("--hf-overrides", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"),
    SGLANG: ("--json-model-override-args", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"),
}


class Severity(StrEnum):
    """How much a note matters, least first."""

    INFO = "info"
    ASSUMPTION = "assumption"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One thing to know of an answer; `remedy` says what to do about what --strict refuses."""

    code: str
    severity: Severity
    text: str
    source: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.source})" if self.source else self.text

    def to_json(self) -> dict[str, str]:
        return {"code": self.code, "severity": str(self.severity), "text": self.text, "source": self.source}


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a question rests on, as far as it is known; diagnostics are found in it."""

    engine: str = VLLM
    vllm_version: str | None = None
    environment: Sequence[str] = ()  # variables of the server that are not modelled
    unused_arguments: Sequence[str] = ()  # of the start-up log
    missing_in_log: Sequence[str] = ()  # arguments that it should hold
    log_contradictions: Sequence[str] = ()  # of the start-up log with itself, or with the model asked about
    architecture: "Architecture | None" = None
    max_model_len: int | None = None  # as asked for
    allows_longer: str = ""  # than the model's own: what makes the engine start with it; "" where it was given
    speculation: "Speculation | None" = None
    usual_context: int | None = None  # tokens of prompt and answer that 99 % of requests do not pass
    terms: Sequence[tuple[str, str, str]] = ()  # of a memory budget: name, value, source
    plans: Sequence["Deployment"] = ()  # that are answered for, each once
    steps: Sequence[tuple["Deployment", "AverageStep"]] = ()  # that the simulated plans took on average
    sequences: float | None = None  # running at once, where one load is known by that alone
    traffic: "TrafficEffects | None" = None  # what max_model_len makes of the load
    traffic_of: str = ""  # of several layouts, whose traffic that is
    cancelled: "Cancellations | None" = None  # by clients that do not wait for ever, at the capacity
    trace: Sequence[str] = ()  # what a trace's reader left out or took for granted
    imprecise: Sequence[tuple[str, float, int]] = ()  # whose users, precision reached, replications that it took
    near_limit: Sequence[tuple[str, "CapacityRow"]] = ()  # whose users, where an error takes most of them
    may_queue: tuple[float, float, float] | None = None  # see `headcount.queries.queueing`
    api_servers_bind: Sequence[tuple[str, "Deployment"]] = ()  # whose bottleneck they are
    streamed: Sequence[tuple[str, float]] = ()  # whose tokens/s each API server streams
    scaled: Sequence[tuple[int, int]] = ()  # servers that were simulated, servers that are answered for
    why_unfit: str | None = None  # why the model does not run
    why_missed: str | None = None  # why the SLO is not met


def facts_about(asked: "ModelOnGPU", **more: Any) -> Facts:
    """What is known of a question before anything is worked out, and `more`."""
    return Facts(
        engine=engine_of(asked.args),
        vllm_version=asked.args.vllm_version,
        environment=asked.args.ignored_environment,
        unused_arguments=asked.unused_arguments,
        missing_in_log=asked.missing_in_log,
        log_contradictions=asked.log_contradictions,
        architecture=asked.architecture,
        max_model_len=asked.args.max_model_len,
        allows_longer=_allows_longer(asked.args),
        speculation=asked.args.speculation,
        **more,
    )


def _allows_longer(args: "AnyArgs") -> str:
    """What an engine needs to take more tokens than the model says; "" where its environment has it."""
    override, variable = _LONGER[engine_of(args)]
    given = any(each in (f"{variable}=1", f"{variable}=true") for each in args.environment)
    return "" if given else f"{override} that raises the limit, or {variable}=1"


class RefusedError(HeadcountError):
    """Raised under --strict: an answer would carry diagnostics that are refused."""

    exit_code = 4


def diagnostics() -> dict[str, ModuleType]:
    """Each by its name, in the order of the names; of two with one name the user's own."""
    shipped = import_module(f"{__name__}.shipped").SHIPPED  # by name: it imports what is defined here
    return dict(sorted((shipped | {name: DIAGNOSTICS.load(name) for name in DIAGNOSTICS.names()}).items()))


def find_diagnostics(facts: Facts, *, strict: bool = False) -> tuple[Diagnostic, ...]:
    """Every note that applies, in the order of the codes. Raises RefusedError under `strict`."""
    found = tuple(dict.fromkeys(note for name, kind in diagnostics().items() for note in _of(name, kind, facts)))
    refused = [note for note in found if note.remedy] if strict else []
    if refused:
        remedies = "; ".join(dict.fromkeys(note.remedy for note in refused))
        raise RefusedError(f"--strict: {'; '.join(map(str, refused))}; {remedies}, or leave --strict out")
    return found


def _of(name: str, kind: ModuleType, facts: Facts) -> Iterator[Diagnostic]:
    code, remedy, file = name.replace("_", "-"), getattr(kind, "REMEDY", ""), getattr(kind, "__file__", None)
    with nullcontext() if file is None else DIAGNOSTICS.running(name):
        for each in kind.find(facts):
            text, source, remedy = typed((*each, remedy), tuple[str, str, str], file or name, "what find yields")
            yield Diagnostic(code=code, severity=Severity(kind.SEVERITY), text=text, source=source, remedy=remedy)
