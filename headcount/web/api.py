"""The questions for programs: JSON in, JSON out, described by OpenAPI."""

import asyncio
import json
from typing import Annotated, Any, Final, Protocol

from fastapi import FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field, JsonValue
from starlette.exceptions import HTTPException

from files.documents import parse_json
from files.errors import HeadcountError
from headcount.version import __version__
from headcount.web.fields import QUESTIONS, TITLES, fields_of
from headcount.web.history import History
from headcount.web.jobs import BusyError, Job, Jobs, State
from headcount.web.scenario import Scenario, read_scenario
from headcount.web.schemas import options_schema, pairs_of

LONGEST_WAIT_S: Final = 60.0
_TICK_S: Final = 0.1
_ABOUT: Final = (
    "How many people can these GPUs serve at once, and how many GPUs do these people need? "
    "An answer takes seconds to minutes: ask, then read the answer by its key."
)
_Wait = Annotated[float, Query(ge=0, le=LONGEST_WAIT_S, description="Seconds to wait for the end of the work.")]
_Key = Annotated[str, Path(description="The answer's key.")]


class Answer(BaseModel):
    """An answer, or how far it is."""

    key: str
    state: State
    link: str = Field(description="The question on the page.")
    progress: str = Field(default="", description="How far the work is.")
    error: str = Field(default="", description="Why there is no answer.")
    figures: dict[str, JsonValue] | None = Field(default=None, description="What the command prints with --json.")


class Problem(BaseModel):
    """Why a request was refused: what was given, what is allowed, what to do."""

    error: str


class Desk(Protocol):
    """Where questions are asked and answers are saved."""

    history: History
    jobs: Jobs

    def ask(self, request: Request, scenario: Scenario, *, is_background: bool = False) -> None: ...


_NOT_YET: Final[dict[int | str, dict[str, Any]]] = {202: {"model": Answer, "description": "It waits or runs."}}
_REFUSALS: Final = {
    400: "Refused.",
    404: "No such answer.",
    422: "A parameter beyond its range.",
    429: "Asked too often.",
    503: "Too many questions wait.",
}
_PROBLEMS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Problem, "description": text} for status, text in _REFUSALS.items()
}


def make_api(desk: Desk) -> FastAPI:
    """To be mounted in the page's server."""
    api = FastAPI(title="Headcount", version=__version__, description=_ABOUT, docs_url=None, redoc_url=None)
    _add_errors(api)
    _add_answers(api, desk)
    for question in QUESTIONS:
        _add_question(api, desk, question)
    return api


def _add_errors(api: FastAPI) -> None:
    @api.exception_handler(HTTPException)
    @api.exception_handler(HeadcountError)
    @api.exception_handler(BusyError)
    @api.exception_handler(RequestValidationError)
    def refused(_: Request, error: Exception) -> Response:
        why, status, headers = str(error), 400, dict[str, str]()
        if isinstance(error, HTTPException):
            why, status, headers = str(error.detail), error.status_code, dict(error.headers or {})
        elif isinstance(error, BusyError):
            status, headers = 503, {"retry-after": "60"}
        elif isinstance(error, RequestValidationError):
            status = 422
            why = "; ".join(f"{each['loc'][-1]}: {each['msg']}" for each in error.errors())
        return JSONResponse({"error": why}, status, headers)


def _add_question(api: FastAPI, desk: Desk, question: str) -> None:
    schema = {"title": "Options", **options_schema(fields_of(question))}

    @api.post(
        f"/{question}",
        operation_id=question,
        summary=TITLES[question],
        responses={**_NOT_YET, **_PROBLEMS},
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}},
    )
    async def ask(request: Request, response: Response, wait_s: _Wait = 0.0) -> Answer:
        given = parse_json((await request.body()).decode("utf-8", "replace"), "the request")
        if not isinstance(given, dict):
            raise HeadcountError("the request is no JSON object; give the options by their names")
        scenario = read_scenario(question, pairs_of(question, given))
        if desk.history.find(scenario.key) is None:
            desk.ask(request, scenario)
        return await _answer(desk, scenario.key, response, wait_s)


def _add_answers(api: FastAPI, desk: Desk) -> None:
    @api.get("/answers/{key}", operation_id="answer", responses={**_NOT_YET, **_PROBLEMS})
    async def answer(key: _Key, response: Response, wait_s: _Wait = 0.0) -> Answer:
        """An answer by its key."""
        return await _answer(desk, key, response, wait_s)

    @api.delete("/answers/{key}", operation_id="cancel", status_code=204, responses={404: _PROBLEMS[404]})
    def cancel(key: _Key) -> None:
        """Stop a question that waits or runs."""
        if desk.jobs.find(key) is None:
            raise HTTPException(404, "no such question waits or runs")
        desk.jobs.cancel(key)


async def _answer(desk: Desk, key: str, response: Response, wait_s: float) -> Answer:
    """The state of a question, once it has ended or the wait is over."""
    until = asyncio.get_running_loop().time() + wait_s
    while (job := desk.jobs.find(key)) is not None and not job.is_over and asyncio.get_running_loop().time() < until:
        await asyncio.sleep(_TICK_S)
    saved = desk.history.find(key)
    figures = desk.history.figures(key) if saved is not None else None
    if saved is not None and figures is not None:
        return Answer(key=key, state=State.DONE, link=saved.scenario.path, figures=json.loads(figures))
    if job is None:
        raise HTTPException(404, "no such answer is saved; ask again")
    if not job.is_over:
        response.status_code = 202
    return Answer(key=key, state=job.state, link=job.scenario.path, progress=_progress(job), error=job.why)


def _progress(job: Job) -> str:
    seen = job.seen
    return f"{seen.done} of {seen.total}: {seen.note}" if seen is not None else ""
