"""What serves requests: a deployment with its clock, and what it makes of a request."""

from dataclasses import dataclass

import numpy as np
from fastapi import Request

from headcount.endpoint.answers import Answers, Asked
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Job, Stream, blocks_missing
from headcount.endpoint.guard import CAME
from headcount.endpoint.requests import ApiError, ChatRequest, CompletionRequest
from headcount.endpoint.tokens import Tokenizer
from simulator.deployment import Deployment
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from workloads.requests import IntArray

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

    def prompt_of(self, asked: CompletionRequest | ChatRequest) -> IntArray:
        if isinstance(asked, ChatRequest):
            return self.tokenizer.chat(asked.turns, is_answered=True)
        given = asked.only_prompt
        return self.tokenizer.encode(given) if isinstance(given, str) else np.array(given, np.int64)

    def job(self, asked: CompletionRequest | ChatRequest) -> Job:
        """Raises ApiError for a request that the engine refuses, or that is not simulated."""
        asked.check()
        self.check_model(asked.model)
        if asked.priority and self.is_sglang:
            raise ApiError("priority is not simulated with SGLang; leave it out", param="priority")
        if asked.priority and self.plan.vllm_engine.scheduling_policy != "priority":
            raise ApiError("priority needs a server with --scheduling-policy priority", param="priority")
        prompt = self.prompt_of(asked)
        most = asked.max_tokens
        if isinstance(asked, ChatRequest) and asked.max_completion_tokens is not None:
            most = asked.max_completion_tokens
        most = self._room(len(prompt), most)
        if asked.min_tokens > most:
            raise ApiError(f"min_tokens is {asked.min_tokens}, above max_tokens {most}", param="min_tokens")
        wanted = Asked(max_tokens=most, min_tokens=asked.min_tokens, ignore_eos=asked.ignore_eos, stop=asked.stops)
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


def submitted(endpoint: Endpoint, asked: CompletionRequest | ChatRequest, request: Request) -> Stream:
    """A request that has arrived. Raises ApiError for one that cannot be served."""
    clock = endpoint.clock
    stream = None if clock.failure else clock.submit(endpoint.job(asked), request.scope[CAME])
    if clock.failure:
        raise ApiError(clock.failure, status=500, kind="InternalServerError")
    if stream is None:
        busy = "too many requests are in flight; --max-concurrent allows more"
        raise ApiError(busy, status=503, kind="ServiceUnavailableError")
    return stream
