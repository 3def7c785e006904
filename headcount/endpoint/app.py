"""The server of the endpoint: what each address answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from headcount.endpoint.answers import Answers, Asked
from headcount.endpoint.clock import Clock
from headcount.endpoint.emulation import Job, blocks_missing
from headcount.endpoint.guard import CAME, Guard
from headcount.endpoint.metrics import Metrics, registry_of
from headcount.endpoint.requests import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from headcount.endpoint.responses import Shape, StreamedAnswer, WholeAnswer
from headcount.endpoint.tokens import Tokenizer
from simulator.deployment import Deployment
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
    def max_model_len(self) -> int:
        return self.plan.engine.max_model_len

    def prompt_of(self, asked: CompletionRequest | ChatRequest) -> IntArray:
        if isinstance(asked, ChatRequest):
            return self.tokenizer.chat(asked.turns, is_answered=True)
        given = asked.only_prompt
        return self.tokenizer.encode(given) if isinstance(given, str) else np.array(given, np.int64)

    def job(self, asked: CompletionRequest | ChatRequest) -> Job:
        """Raises ApiError for a request that vLLM refuses, or that is not simulated."""
        asked.check()
        self.check_model(asked.model)
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
        )

    def _room(self, prompt: int, asked: int | None) -> int:
        """The most tokens of an answer. Raises ApiError where there is no room for as many as asked."""
        if asked is not None and asked < 1:
            raise ApiError(f"max_tokens must be at least 1, got {asked}.", param="max_tokens")
        if prompt == 0:
            raise ApiError("The prompt is empty.", param="prompt")
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


def make_app(endpoint: Endpoint) -> ASGIApp:
    """The whole server."""

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        endpoint.clock.start()
        yield

    app = FastAPI(title="Headcount", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    _add_errors(app)
    _add_answers(app, endpoint)
    _add_tokens(app, endpoint)
    _add_states(app, endpoint)
    return Guard(app=app, api_key=endpoint.api_key, most_bytes=endpoint.most_bytes)


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return JSONResponse(error.body(), error.status)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
        return JSONResponse(ApiError(error.detail, status=error.status_code, kind=kind).body(), error.status_code)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:3])
        return JSONResponse(ApiError(f"{place or 'body'}: {first['msg']}"[:SHOWN], param=place or None).body(), 400)


def _add_answers(app: FastAPI, endpoint: Endpoint) -> None:
    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        return _answer(endpoint, asked, request)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest, request: Request) -> Response:
        return _answer(endpoint, asked, request)


def _answer(endpoint: Endpoint, asked: CompletionRequest | ChatRequest, request: Request) -> Response:
    clock = endpoint.clock
    stream = None if clock.failure else clock.submit(endpoint.job(asked), request.scope[CAME])
    if clock.failure:
        raise ApiError(clock.failure, status=500, kind="InternalServerError")
    if stream is None:
        busy = "too many requests are in flight; --max-concurrent allows more"
        raise ApiError(busy, status=503, kind="ServiceUnavailableError")
    options = asked.stream_options
    shape = Shape(
        model=endpoint.model,
        is_chat=isinstance(asked, ChatRequest),
        include_usage=options is not None and options.include_usage,
        usage_each=options is not None and options.continuous_usage_stats,
    )
    return (StreamedAnswer if asked.stream else WholeAnswer)(stream, clock, shape)


def _add_tokens(app: FastAPI, endpoint: Endpoint) -> None:
    tokenizer = endpoint.tokenizer

    @app.post("/tokenize")
    async def tokenize(asked: TokenizeRequest) -> dict[str, Any]:
        endpoint.check_model(asked.model)
        if (asked.prompt is None) == (asked.messages is None):
            raise ApiError("give prompt or messages", param="prompt")
        if asked.messages is not None:
            turns = [(message.role, message.text) for message in asked.messages]
            tokens = tokenizer.chat(turns, is_answered=asked.add_generation_prompt).tolist()
        else:
            tokens = tokenizer.encode(asked.prompt or "").tolist()
        texts = [tokenizer.decode([token]) for token in tokens] if asked.return_token_strs else None
        found = {"count": len(tokens), "max_model_len": endpoint.max_model_len, "tokens": tokens}
        return {**found, "token_strs": texts}

    @app.post("/detokenize")
    async def detokenize(asked: DetokenizeRequest) -> dict[str, str]:
        endpoint.check_model(asked.model)
        return {"prompt": tokenizer.decode(asked.tokens)}


def _add_states(app: FastAPI, endpoint: Endpoint) -> None:
    registry = registry_of(Metrics(endpoint.clock, endpoint.plan, endpoint.model))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        card = {"id": endpoint.model, "object": "model", "created": 0, "owned_by": "vllm", "root": endpoint.model}
        return {"object": "list", "data": [{**card, "parent": None, "max_model_len": endpoint.max_model_len}]}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    @app.get("/version")
    async def version() -> dict[str, str]:
        return {"version": endpoint.plan.args.vllm_version}

    @app.api_route("/health", methods=["GET", "HEAD"])
    @app.api_route("/ping", methods=["GET", "POST", "HEAD"])
    async def health() -> Response:
        return Response(status_code=503 if endpoint.clock.failure else 200)
