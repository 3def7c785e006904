"""What serves requests: a deployment with its clock, how it starts, and what it makes of a request."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from fastapi import Request

from files.errors import HeadcountError
from headcount.diagnostics import Diagnostic, facts_about, find_diagnostics
from headcount.endpoint.answers import Answers, Asked
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Emulation, Job, Stream, blocks_missing
from headcount.endpoint.guard import CAME
from headcount.endpoint.requests import ApiError, ChatRequest, CompletionRequest
from headcount.endpoint.tokens import EstimatedTokens, FileTokens, Tokenizer
from headcount.inputs.engine import EngineInput
from simulator.deployment import Deployment, resolve
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.fleet.fleet import Fleet
from simulator.fleet.router import RouterFactory
from simulator.live import LiveFleet
from workloads.distributions import Distribution, Fixed
from workloads.load import load_workload
from workloads.requests import OPEN_END, IntArray
from workloads.traces.trace import Trace

MOST_TOGETHER = 10_000  # answers to one request
SHOWN = 200  # characters of a wrong value


@dataclass(frozen=True, kw_only=True, eq=False)
class Endpoint:
    """A deployment that answers, and how it is reached."""

    plan: Deployment
    clock: Clock
    tokenizer: Tokenizer
    answers: Answers
    alias: str = ""  # another name that clients may give the model
    api_key: str | None = None
    most_bytes: int = 32_000_000

    @property
    def model(self) -> str:
        return self.plan.architecture.name

    @property
    def is_sglang(self) -> bool:
        return isinstance(self.plan.engine, SGLangConfig)

    @property
    def sglang_engine(self) -> SGLangConfig:
        """Of a server that is SGLang's."""
        engine = self.plan.engine
        assert isinstance(engine, SGLangConfig)
        return engine

    @property
    def max_model_len(self) -> int:
        engine = self.plan.engine
        return engine.context_len if isinstance(engine, SGLangConfig) else engine.max_model_len

    def prompts_of(self, asked: CompletionRequest | ChatRequest) -> list[IntArray]:
        if isinstance(asked, ChatRequest):
            return [self.tokenizer.chat(asked.turns, is_answered=True)]
        return [
            self.tokenizer.encode(given) if isinstance(given, str) else np.array(given, np.int64)
            for given in asked.prompts
        ]

    def jobs(self, asked: CompletionRequest | ChatRequest) -> list[Job]:
        """One for each answer: those to the first prompt, then those to the second.

        Raises ApiError for a request that the engine refuses, or that is not simulated.
        """
        asked.check()
        self.check_model(asked.model)
        if asked.priority and self.is_sglang:
            raise ApiError("priority is not simulated with SGLang; leave it out", param="priority")
        if asked.priority and self.plan.vllm_engine.scheduling_policy != "priority":
            raise ApiError("priority needs a server with --scheduling-policy priority", param="priority")
        prompts = self.prompts_of(asked)
        if len(prompts) * asked.num_answers > MOST_TOGETHER:
            raise ApiError(
                f"{len(prompts)} prompts, n {asked.num_answers}: at most {MOST_TOGETHER:,} answers a request"
            )
        return [self._job(asked, prompt, choice) for prompt in prompts for choice in range(asked.num_answers)]

    def _job(self, asked: CompletionRequest | ChatRequest, prompt: IntArray, choice: int) -> Job:
        most = asked.max_tokens
        if isinstance(asked, ChatRequest) and asked.max_completion_tokens is not None:
            most = asked.max_completion_tokens
        most = self._room(len(prompt), most)
        if asked.min_tokens > most:
            raise ApiError(f"min_tokens is {asked.min_tokens}, above max_tokens {most}", param="min_tokens")
        wanted = Asked(
            max_tokens=most,
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            stop=asked.stops,
            schema=asked.schema_of_answer,
            choice=choice,
        )
        return Job(
            prompt=prompt,
            answer=self.answers.draw(prompt, wanted),
            max_tokens=most,
            priority=asked.priority,
            session=asked.session,
            salt=asked.cache_salt or "",
            is_streamed=bool(asked.stream),
        )

    def _room(self, prompt: int, asked: int | None) -> int:
        """The most tokens of an answer. Raises ApiError where there is no room for as many as asked."""
        if asked is not None and asked < 1:
            raise ApiError(f"max_tokens must be at least 1, got {asked}.", param="max_tokens")
        if prompt == 0:
            raise ApiError("The prompt is empty.", param="prompt")
        if isinstance(self.plan.engine, SGLangConfig):
            return _room_of_sglang(self.plan.engine, prompt, asked)
        room = self.max_model_len - prompt
        most = room if asked is None else asked
        if room < 1 or most > room:
            wants = f"{asked} output tokens were requested and " if asked is not None else ""
            raise ApiError(
                f"This model's maximum context length is {self.max_model_len} tokens. However, {wants}the prompt "
                f"contains {prompt} input tokens, {prompt + max(most, 1)} in total. Shorten the prompt, or ask for "
                "fewer output tokens.",
                param="input_tokens",
            )
        if missing := blocks_missing(self.plan.vllm_engine, prompt + most):
            raise ApiError(f"{prompt + most} tokens take {missing} KV blocks more than this server has")
        return most

    def check_model(self, name: str | None) -> None:
        """Raises ApiError for another model."""
        if name and name not in (self.model, self.alias):
            message = f"The model `{name[:SHOWN]}` does not exist. Valid aliases: {self.model}."
            raise ApiError(message, status=404, kind="NotFoundError", param="model")


def _room_of_sglang(engine: SGLangConfig, prompt: int, asked: int | None) -> int:
    """The same under SGLang, which cuts what an answer may become to its memory."""
    if prompt >= engine.context_len:
        raise ApiError(
            f"The input ({prompt} tokens) is longer than the model's context length ({engine.context_len} tokens).",
            param="prompt",
        )
    if asked is not None and prompt + asked > engine.context_len:
        raise ApiError(
            f"Requested token count exceeds the model's maximum context length of {engine.context_len} tokens. You "
            f"requested a total of {prompt + asked} tokens: {prompt} tokens from the input messages and {asked} tokens "
            "for the completion. Please reduce the number of tokens in the input messages or the completion to fit "
            "within the limit.",
            param="max_tokens",
        )
    try:
        most = engine.accepted_new_tokens(prompt, engine.context_len if asked is None else asked)
    except ValueError as error:
        raise ApiError(str(error), param="prompt") from None
    if most < 1:
        raise ApiError(f"a prompt of {prompt} tokens leaves no memory for an answer", param="prompt")
    return most


def submitted(endpoint: Endpoint, asked: CompletionRequest | ChatRequest, request: Request) -> list[Stream]:
    """The answers to a request that has arrived. Raises ApiError for one that cannot be served."""
    clock, streams = endpoint.clock, list[Stream]()
    for job in [] if clock.failure else endpoint.jobs(asked):
        stream = clock.submit(job, request.scope[CAME])
        if stream is None:
            break
        streams.append(stream)
    else:
        if not clock.failure:
            return streams
    for stream in streams:
        clock.hang_up(stream)
    if clock.failure:
        raise ApiError(clock.failure, status=500, kind="InternalServerError")
    busy = "too many requests are in flight; --max-concurrent allows more"
    raise ApiError(busy, status=503, kind="ServiceUnavailableError")


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
