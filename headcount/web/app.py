"""The server of the page: what each address answers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Final

from fastapi import FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from files.errors import HeadcountError
from files.outputs import cache_folder
from headcount.web import pages
from headcount.web.api import make_api
from headcount.web.fields import QUESTIONS, fields_of
from headcount.web.guard import IS_PUBLIC, REPORT_POLICY, AskRate, Guard
from headcount.web.history import History
from headcount.web.jobs import Bounds, BusyError, Job, Jobs
from headcount.web.saved_jobs import MOST, compared
from headcount.web.scenario import LONGEST_VALUE, MOST_FILES, Scenario, read_scenario
from headcount.web.sliders import slid, sliders_of
from headcount.web.uploads import Uploads

_STATIC: Final = {"page.js": "text/javascript", "style.css": "text/css"}
_PLACE: Final = "at."  # before a slider's name in a link


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the page is served."""

    port: int
    token: str | None = None
    most_upload_bytes: int = 64_000_000
    is_public: bool = False
    asks_per_minute: int = 6  # of each client of a public page
    bounds: Bounds = field(default_factory=Bounds)


class Desk:
    """Questions in, answers out."""

    def __init__(self, settings: Settings, base: Path) -> None:
        self.history, self.uploads = History(base), Uploads(base)
        self.jobs = Jobs(settings.bounds, self.uploads.folder_of, self._finish)
        self._rate = AskRate(settings.asks_per_minute) if settings.is_public else None

    def ask(self, request: Request, scenario: Scenario, *, is_background: bool = False) -> None:
        """Let a question wait for its turn. Raises HTTPException where its client asks too often."""
        if self._rate is not None:
            self._rate.check(request.client.host if request.client else "", monotonic())
        self.jobs.ask(scenario, scenario.key, is_background=is_background)

    def _finish(self, job: Job) -> None:
        if job.answered is not None:
            self.history.keep(job.key, job.answered)

    def page(self, scenario: Scenario) -> str:
        """The scenario with its answer, or how far it is, or its form."""
        kept = self.history.find(scenario.key)
        job = None if kept else self.jobs.find(scenario.key)
        return pages.render(
            "question.html",
            form=pages.form_of(scenario.question, pages.values_of(scenario)),
            scenario=scenario,
            kept=kept,
            sliders=sliders_of(scenario, kept) if kept else [],
            job=job,
            live=self.live(job) if job else "",
            refused="",
        )

    def live(self, job: Job) -> str:
        """How far a job is, as HTML."""
        since_s = monotonic() - (job.began_s or job.asked_s)
        return pages.render("live.html", job=job, seconds=since_s, before=self.jobs.waiting(job))


def make_app(settings: Settings, base: Path | None = None) -> ASGIApp:
    """The whole server; `base` is the cache folder."""
    desk = Desk(settings, cache_folder() if base is None else base)

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        for question in QUESTIONS:  # so that the first page comes at once
            desk.page(Scenario(question))
        desk.jobs.start()
        yield
        await run_in_threadpool(desk.jobs.close)

    app = FastAPI(title="Headcount", docs_url=None, redoc_url=None, openapi_url=None, lifespan=running)
    _add_errors(app)
    _add_answers(app, desk)
    _add_sliders(app, desk)
    _add_lists(app, desk)
    app.mount("/api", make_api(desk))
    for question in QUESTIONS:  # last: the other addresses win
        _add_question(app, desk, question)
    return Guard(
        app=app,
        port=settings.port,
        token=settings.token,
        most_bytes=settings.most_upload_bytes,
        is_public=settings.is_public,
    )


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(HTTPException)
    @app.exception_handler(ValueError)
    @app.exception_handler(BusyError)
    @app.exception_handler(OSError)
    def told(_: Request, error: Exception) -> Response:
        headers: dict[str, str] = {}
        why, status = str(error), 400
        if isinstance(error, HTTPException):
            why, status, headers = str(error.detail), error.status_code, dict(error.headers or {})
        elif isinstance(error, BusyError):
            status, headers = 503, {"retry-after": "60"}
        elif isinstance(error, OSError):
            why, status = f"the server cannot keep the file: {error.strerror or error}", 507
        return HTMLResponse(pages.render("refused.html", why=why), status, headers)


def _add_question(app: FastAPI, desk: Desk, question: str) -> None:
    @app.get(f"/{question}")
    def show(request: Request) -> Response:
        pairs = request.query_params.multi_items()
        try:
            return HTMLResponse(desk.page(read_scenario(question, pairs)))
        except HeadcountError as error:
            return _form_again(question, pairs, str(error))

    @app.post(f"/{question}")
    async def ask(request: Request) -> Response:
        pairs: list[tuple[str, str]] = []
        try:
            scenario = read_scenario(question, await _form_pairs(request, desk, question, pairs))
        except HeadcountError as error:
            return _form_again(question, pairs, str(error))
        if desk.history.find(scenario.key) is None:
            desk.ask(request, scenario)
        return RedirectResponse(scenario.path, 303)


async def _form_pairs(
    request: Request, desk: Desk, question: str, pairs: list[tuple[str, str]]
) -> list[tuple[str, str]]:
    """The form's fields, files put away and named; `pairs` holds those that were read, also where it is refused."""
    async with request.form(max_files=MOST_FILES, max_fields=500, max_part_size=4 * LONGEST_VALUE) as form:
        pairs += [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
        files = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
        if IS_PUBLIC.get() and any(file.filename for _, file in files):
            raise HTTPException(403, "this public page takes no files; ask with your own 'headcount web'")
        known = {field.name: field for field in fields_of(question)}
        for name, file in files:
            field = known.get(name.removeprefix("file."))
            if field is None or not file.filename:
                continue
            if not field.is_many:
                pairs[:] = [pair for pair in pairs if pair[0] != field.name]
            kept = await run_in_threadpool(desk.uploads.keep, file.filename, file.file)
            pairs.append((field.name, kept))
    return pairs


def _form_again(question: str, pairs: list[tuple[str, str]], why: str) -> Response:
    form = pages.form_of(question, pages.shown_as_given(question, pairs))
    page = pages.render(
        "question.html", form=form, scenario=Scenario(question), kept=None, sliders=[], job=None, live="", refused=why
    )
    return HTMLResponse(page, 400)


def _add_answers(app: FastAPI, desk: Desk) -> None:
    @app.get("/live/{key}")
    def live(key: str) -> Response:
        job = desk.jobs.find(key)
        if job is None:
            return JSONResponse({"is_over": True, "html": ""})
        return JSONResponse({"is_over": job.is_over, "html": desk.live(job)})

    @app.post("/cancel/{key}")
    def cancel(key: str) -> Response:
        job = desk.jobs.find(key)
        if job is None:
            raise HTTPException(404, "no such question waits or runs")
        desk.jobs.cancel(key)
        return RedirectResponse(job.scenario.path, 303)

    @app.get("/report/{key}")
    def report(key: str) -> Response:
        found = desk.history.report(key)
        if found is None:
            raise HTTPException(404, "this answer is not saved; ask again")
        sizing = pages.render("report_size.html")
        return HTMLResponse(found + sizing, headers={"content-security-policy": REPORT_POLICY})

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        if name not in _STATIC:
            raise HTTPException(404, "no such file")
        return Response(pages.render(name), media_type=_STATIC[name])


def _add_sliders(app: FastAPI, desk: Desk) -> None:
    def asked(request: Request, question: str) -> tuple[Scenario, dict[str, str]]:
        pairs = request.query_params.multi_items()
        places = {name.removeprefix(_PLACE): value for name, value in pairs if name.startswith(_PLACE)}
        return read_scenario(question, [pair for pair in pairs if not pair[0].startswith(_PLACE)]), places

    @app.get("/slide/{question}")
    def slide(request: Request, question: str) -> Response:
        found = slid(desk.history, *asked(request, question))
        job = None if found.kept else desk.jobs.find(found.scenario.key)
        html = pages.render("slid.html", slid=found, job=job)
        state = "known" if found.kept else "missing" if job is None else str(job.state)
        return JSONResponse({"state": state, "html": html, "link": found.scenario.path})

    @app.post("/slide/{question}")
    def compute(request: Request, question: str) -> Response:
        found = slid(desk.history, *asked(request, question))
        if found.kept is None:
            desk.ask(request, found.scenario, is_background=True)
        return PlainTextResponse("", 202)


def _add_lists(app: FastAPI, desk: Desk) -> None:
    @app.get("/")
    def home() -> Response:
        newest = [] if IS_PUBLIC.get() else desk.history.newest()[:5]
        return HTMLResponse(pages.render("home.html", newest=newest))

    @app.get("/history")
    def history() -> Response:
        if IS_PUBLIC.get():
            raise HTTPException(403, "this public page does not list what others asked; keep the link of your answer")
        return HTMLResponse(pages.render("history.html", found=desk.history.newest(), most=MOST))

    @app.get("/side-by-side")
    def side_by_side(request: Request) -> Response:
        keys = list(dict.fromkeys(request.query_params.getlist("answer")))
        if not 2 <= len(keys) <= MOST:
            raise HTTPException(400, f"choose 2 to {MOST} answers of the history")
        answers = [kept for key in keys if (kept := desk.history.find(key)) is not None]
        if len(answers) < len(keys):
            raise HTTPException(404, "one of these answers is no longer saved; ask again")
        return HTMLResponse(pages.render("side_by_side.html", answers=answers, compared=compared(answers)))
