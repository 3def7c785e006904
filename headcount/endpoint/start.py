"""From a deployment's arguments to an endpoint that is ready to answer."""

from dataclasses import dataclass
from pathlib import Path

from files.errors import HeadcountError
from headcount.diagnostics import Diagnostic, facts_about, find_diagnostics
from headcount.endpoint.answers import Answers
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Emulation
from headcount.endpoint.serving import Endpoint
from headcount.endpoint.tokens import EstimatedTokens, FileTokens
from headcount.inputs.engine import EngineInput
from simulator.deployment import resolve
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import RouterFactory
from simulator.live import LiveFleet
from workloads.distributions import Distribution, Fixed
from workloads.load import load_workload
from workloads.requests import OPEN_END
from workloads.traces.trace import Trace


@dataclass(frozen=True, kw_only=True)
class Served:
    """How the endpoint serves, apart from its deployment."""

    replicas: int = 1
    router: str | RouterFactory | None = None
    speed: float = 1.0
    workload: str | Path = "chat"  # whose answers' lengths are drawn
    output_len: int | None = None  # of every answer, instead
    tokenizer: Path | None = None
    seed: int = 0
    max_concurrent: int = 10_000  # requests in flight
    max_body: int = 32_000_000  # bytes of one request
    api_key: str | None = None

    def lengths(self) -> Distribution:
        """Of answers that end by themselves. Raises HeadcountError for a workload that draws none."""
        if self.output_len is not None:
            return Fixed(value=self.output_len)
        found = load_workload(self.workload)
        if isinstance(found, Trace):
            raise HeadcountError(
                f"--workload {self.workload} is a trace; give a preset, a population's TOML file or --output-len"
            )
        return found.output_tokens


def endpoint(
    model: str, gpu: str, served: Served, engine: EngineInput, *, strict: bool = False
) -> tuple[Endpoint, tuple[Diagnostic, ...]]:
    """An endpoint, its kernels compiled, with what is to know of it.

    Raises HeadcountError for a bad argument, RefusedError where `strict` refuses a note.
    """
    if not 0.01 <= served.speed <= 1000:
        raise HeadcountError(f"--speed is {served.speed:g}; give a number from 0.01 to 1000")
    asked = engine.on(model, gpu)
    plan = resolve(asked.architecture, asked.gpu, asked.args)
    diagnostics = find_diagnostics(facts_about(asked, plans=[plan]), strict=strict)
    tokenizer = EstimatedTokens() if served.tokenizer is None else FileTokens(served.tokenizer)
    fleet = plan.fleet(served.replicas, served.router)
    answers = Answers(tokenizer, served.lengths(), seed=served.seed)
    _compile(fleet)
    clock = Clock(Emulation(fleet, most=served.max_concurrent, seed=served.seed), speed=served.speed)
    made = Endpoint(
        plan=plan,
        clock=clock,
        tokenizer=tokenizer,
        answers=answers,
        alias=model,
        api_key=served.api_key,
        most_bytes=served.max_body,
    )
    return made, diagnostics


def _compile(fleet: Fleet) -> None:
    """Serve two requests of another such fleet, and abort one, so that the first client does not wait for it."""
    live = LiveFleet(fleet, most=2)
    rows = [live.submit(0.0, 1, 2, [(content, OPEN_END)]) for content in range(2)]
    live.abort(rows[0] or 0, live.next_s)
    while live.advance() is not None:
        pass
    live.compact()
