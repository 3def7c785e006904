"""The addresses that SGLang's server has beside OpenAI's: /generate, and what it says of itself.

As SGLang 0.5.23 has them (`srt/entrypoints/http_server.py`, `srt/managers/io_struct.py`).
"""

import uuid

from fastapi import FastAPI, Request
from pydantic import BaseModel, Field
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from files.documents import Json
from headcount.endpoint.requests import ApiError, CompletionRequest, SamplingBounds, Token
from headcount.endpoint.responses import DONE, STREAM_HEADERS, Shape, Waiting, event
from headcount.endpoint.serving import Endpoint, submitted


class SamplingParams(SamplingBounds):
    """Those that change how many tokens there are, and bounds of the others."""

    max_new_tokens: int = 128
    min_new_tokens: int = Field(0, ge=0)
    ignore_eos: bool = False
    stop: str | list[str] | None = None
    n: int = 1
    json_schema: Json | str | None = None
    regex: object = None
    ebnf: object = None
    structural_tag: object = None


class GenerateRequest(BaseModel):
    text: str | list[str] | None = None
    input_ids: list[Token] | list[list[Token]] | None = None
    sampling_params: SamplingParams = SamplingParams.model_validate({})
    stream: bool = False
    rid: str | None = Field(None, max_length=1024)
    return_logprob: bool | None = False

    def as_completion(self) -> CompletionRequest:
        """Raises ApiError for what is not simulated."""
        if (self.text is None) == (self.input_ids is None):
            raise ApiError("give text or input_ids", param="text")
        if self.return_logprob:
            raise ApiError("return_logprob is not simulated; leave it out", param="return_logprob")
        wanted = self.sampling_params
        texts = isinstance(self.text, list) or isinstance(next(iter(self.input_ids or ()), None), list)
        if texts or wanted.n != 1:
            raise ApiError("one prompt with one answer is simulated here: give no list, n=1", param="text")
        shared = wanted.model_dump(include={"ignore_eos", "stop", "n", "regex", "ebnf", "structural_tag"})
        lengths = {"max_tokens": wanted.max_new_tokens, "min_tokens": wanted.min_new_tokens}
        prompt = self.input_ids if self.text is None else self.text
        return CompletionRequest.model_validate(
            {"prompt": prompt, "stream": self.stream, **lengths, **shared, "guided_json": wanted.json_schema}
        )


class GeneratedAnswer(Waiting):
    """The answer to /generate, whole, or each time as much of it as there is."""

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream, is_streamed = self.stream, self.stream.job.is_streamed
        if is_streamed:
            await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
        while not stream.is_over:
            stream.changed.clear()
            if is_streamed:
                await self._send_news(send)
            await stream.changed.wait()
        if is_streamed:
            await self._send_news(send)
            last = event(self._failure()) if stream.failure else b""
            await send({"type": "http.response.body", "body": last + DONE, "more_body": False})
        elif stream.failure:
            await JSONResponse(self._failure(), 500)(scope, receive, send)
        elif stream.is_done:
            await JSONResponse(self._so_far())(scope, receive, send)
            self.clock.left(stream.last_s)

    async def _send_news(self, send: Send) -> None:
        words, token_s = self.stream.take()
        if words:
            await send({"type": "http.response.body", "body": event(self._so_far()), "more_body": True})
            self.clock.left(token_s)

    def _failure(self) -> dict[str, object]:
        return {"error": {"message": self.stream.failure, "type": "internal_error", "code": 500}}

    def _so_far(self) -> dict[str, object]:
        stream, answer, count = self.stream, self.stream.job.answer, self.stream.num_tokens
        ends: dict[str, object] | None = None
        if stream.is_done:
            how = {"length": count} if answer.finish_reason == "length" else {"matched": answer.stop_reason}
            ends = {"type": answer.finish_reason, **how}
        about = {
            "id": self.shape.id,
            "finish_reason": ends,
            "prompt_tokens": len(stream.job.prompt),
            "weight_version": "default",
            "completion_tokens": count,
            "cached_tokens": stream.cached_tokens,
        }
        text = "".join(answer.words[:count])
        return {"text": text, "output_ids": answer.tokens[:count].tolist(), "meta_info": about}


def add_sglang(app: FastAPI, endpoint: Endpoint) -> None:
    @app.api_route("/generate", methods=["POST", "PUT"])
    async def generate(asked: GenerateRequest, request: Request) -> Response:
        streams, rid = submitted(endpoint, asked.as_completion(), request), asked.rid or uuid.uuid4().hex
        return GeneratedAnswer(streams, endpoint.clock, Shape(model=endpoint.model, is_chat=False, id=rid))

    @app.get("/model_info")
    @app.get("/get_model_info")
    async def model_info() -> dict[str, object]:
        return {
            "model_path": endpoint.model,
            "served_model_name": endpoint.model,
            "tokenizer_path": endpoint.model,
            "is_generation": True,
            "preferred_sampling_params": None,
            "weight_version": "default",
            "has_image_understanding": False,
            "has_audio_understanding": False,
        }

    @app.get("/server_info")
    @app.get("/get_server_info")
    async def server_info() -> dict[str, object]:
        return _server_info(endpoint)

    @app.get("/health_generate")
    @app.get("/ready")
    async def ready() -> Response:
        return Response(status_code=503 if endpoint.clock.failure else 200)


def _server_info(endpoint: Endpoint) -> dict[str, object]:
    plan, engine = endpoint.plan, endpoint.sglang_engine
    settings = dict(plan.settings)
    version = settings.pop("sglang_version")
    states = {
        "memory_usage": {"token_capacity": engine.max_total_num_tokens},
        "effective_max_running_requests_per_dp": engine.max_running_requests,
    }
    return {
        "model_path": endpoint.model,
        "served_model_name": endpoint.model,
        "tokenizer_path": endpoint.model,
        "tp_size": plan.args.tensor_parallel_size,
        "dp_size": plan.args.num_engines,
        "attn_dp_size": plan.args.attention_groups,
        **settings,
        "max_total_num_tokens": engine.max_total_num_tokens,
        "max_req_input_len": engine.max_req_len - 5,
        "launch_command": plan.serve_line,
        "internal_states": [states] * len(endpoint.clock.emulation.live.simulation.arrays.replicas),
        "version": version,
    }
