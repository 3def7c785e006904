"""The server of the endpoint: what each address answers, under vLLM or SGLang."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.registry import Collector
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from headcount.endpoint.guard import Guard
from headcount.endpoint.messages_api import add_messages
from headcount.endpoint.metrics.sglang import SGLangMetrics
from headcount.endpoint.metrics.sglang_reports import Reports
from headcount.endpoint.metrics.vllm import VLLMMetrics
from headcount.endpoint.requests import (
    ApiError,
    ChatRequest,
    CompletionRequest,
    DetokenizeRequest,
    TokenizeRequest,
)
from headcount.endpoint.responses import Shape, StreamedAnswer, WholeAnswer
from headcount.endpoint.responses_api import add_responses
from headcount.endpoint.serving import SHOWN, Endpoint, submitted
from headcount.endpoint.sglang_api import add_sglang

_SLEEP = "sleep mode is not simulated: the emulated server keeps its one model awake"
_LORA = "loading LoRA adapters is not simulated: the emulated server answers for its one model; ask it by that name"
# Routes of vLLM 0.33 (vllm/entrypoints/serve) that change the server instead of asking it.
_NOT_SIMULATED = {
    "/sleep": _SLEEP,
    "/wake_up": _SLEEP,
    "/is_sleeping": _SLEEP,
    "/v1/load_lora_adapter": _LORA,
    "/v1/unload_lora_adapter": _LORA,
}


def make_app(endpoint: Endpoint) -> ASGIApp:
    """The whole server."""

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        endpoint.clock.start()
        yield

    app = FastAPI(title="Headcount", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    _add_errors(app, endpoint)
    _add_answers(app, endpoint)
    add_responses(app, endpoint)
    add_messages(app, endpoint)
    if endpoint.is_sglang:
        add_sglang(app, endpoint)
    _add_tokens(app, endpoint)
    _add_states(app, endpoint)
    return Guard(app=app, api_key=endpoint.api_key, most_bytes=endpoint.most_bytes)


def _add_errors(app: FastAPI, endpoint: Endpoint) -> None:
    def told(error: ApiError) -> Response:
        body = error.body()
        return JSONResponse({"object": "error", **body["error"]} if endpoint.is_sglang else body, error.status)

    @app.exception_handler(ApiError)
    async def refused(_: Request, error: ApiError) -> Response:
        return told(error)

    @app.exception_handler(HTTPException)
    async def unknown(_: Request, error: HTTPException) -> Response:
        kind = "NotFoundError" if error.status_code == 404 else "BadRequestError"
        return told(ApiError(error.detail, status=error.status_code, kind=kind))

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"][1:3])
        return told(ApiError(f"{place or 'body'}: {first['msg']}"[:SHOWN], param=place or None))


def _add_answers(app: FastAPI, endpoint: Endpoint) -> None:
    @app.post("/v1/completions")
    async def completions(asked: CompletionRequest, request: Request) -> Response:
        return _answer(endpoint, asked, request)

    @app.post("/v1/chat/completions")
    async def chat(asked: ChatRequest, request: Request) -> Response:
        return _answer(endpoint, asked, request)


def _answer(endpoint: Endpoint, asked: CompletionRequest | ChatRequest, request: Request) -> Response:
    streams = submitted(endpoint, asked, request)
    options = asked.stream_options
    shape = Shape(
        model=endpoint.model,
        is_chat=isinstance(asked, ChatRequest),
        include_usage=options is not None and options.include_usage,
        usage_each=options is not None and options.continuous_usage_stats,
        num_logprobs=asked.num_logprobs,
        words=endpoint.tokenizer.words,
        stop_name="matched_stop" if endpoint.is_sglang else "stop_reason",
    )
    return (StreamedAnswer if asked.stream else WholeAnswer)(streams, endpoint.clock, shape)


def _add_tokens(app: FastAPI, endpoint: Endpoint) -> None:
    tokenizer = endpoint.tokenizer

    @app.post("/tokenize")
    async def tokenize(asked: TokenizeRequest) -> dict[str, object]:
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
        return {"text" if endpoint.is_sglang else "prompt": tokenizer.decode(asked.tokens)}


def _add_states(app: FastAPI, endpoint: Endpoint) -> None:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_metrics(endpoint))
    owner = "sglang" if endpoint.is_sglang else "vllm"

    @app.get("/v1/models")
    async def models() -> dict[str, object]:
        card = {"id": endpoint.model, "object": "model", "created": 0, "owned_by": owner, "root": endpoint.model}
        return {"object": "list", "data": [{**card, "parent": None, "max_model_len": endpoint.max_model_len}]}

    @app.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    if not endpoint.is_sglang:

        @app.get("/version")
        async def version() -> dict[str, str]:
            return {"version": endpoint.plan.args.vllm_version}

        @app.get("/load")
        async def load() -> dict[str, int]:
            return {"server_load": endpoint.clock.emulation.num_in_flight}

    for path, why in _NOT_SIMULATED.items():
        _refuse(app, path, why)

    @app.api_route("/health", methods=["GET", "HEAD"])
    @app.api_route("/ping", methods=["GET", "POST", "HEAD"])
    async def health() -> Response:
        return Response(status_code=503 if endpoint.clock.failure else 200)


def _refuse(app: FastAPI, path: str, why: str) -> None:
    @app.api_route(path, methods=["GET", "POST"])
    async def refused() -> None:
        raise ApiError(why, kind="NotImplemented")


def _metrics(endpoint: Endpoint) -> Collector:
    reports = endpoint.clock.emulation.reports
    if isinstance(reports, Reports):
        return SGLangMetrics(endpoint.clock, reports, endpoint.model)
    return VLLMMetrics(endpoint.clock, endpoint.plan, endpoint.model)
