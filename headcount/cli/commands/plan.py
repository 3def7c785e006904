"""`headcount plan`: the cheapest fleet for so many people."""

from functools import partial
from pathlib import Path
from typing import cast

import click

from files.errors import HeadcountError
from headcount.cli.command import QuestionCommand, section
from headcount.cli.given import Given
from headcount.cli.options import (
    answer_options,
    engine_argument_options,
    inputs,
    manifest_options,
    model_option,
    running_options,
    scheduler_options,
    slo_options,
    traffic_options,
)
from headcount.cli.output import ask
from headcount.inputs.disaggregation import LinkInput
from headcount.inputs.people import PeopleInput
from headcount.inputs.prices import PriceInput
from headcount.inputs.search import PlanSearch
from headcount.queries.plan import PlanResult, plan
from headcount.queries.result import Result
from headcount.views.manifests.written import check_formats, write

_FORMATS = ("quantization", "kv_cache_dtype")  # which are chosen


@click.command("plan", cls=QuestionCommand)
@inputs(PeopleInput)
@section("Choice", model_option)
@inputs(PlanSearch, "gpu", *_FORMATS)
@engine_argument_options(has_log=False, without=_FORMATS, tensor_parallel_size="all that fit")
@inputs(PriceInput)
@traffic_options
@slo_options
@scheduler_options(inputs(PlanSearch, "router"))
@inputs(PlanSearch, "pools")
@inputs(LinkInput)
@inputs(PlanSearch, "precision", "replications", "carbon_intensity")
@running_options
@manifest_options
@answer_options
def command(given: Given) -> int:
    """Find the cheapest fleet that serves a number of users within the SLO.

    Give one of --users, --employees, --requests-per-s and --tokens-per-day. Each layout of each GPU is screened by an
    estimate first. The cheapest of each GPU are then simulated, with as few servers as serve all users.

    With --pools, disaggregated prefill/decode is searched as well: the numbers of prefill engines and decode engines.
    """
    formats = cast("tuple[str, ...]", given.values.get("manifest_formats") or ())
    folder = given.path("emit")
    check_formats(formats)
    if formats and folder is None:
        raise HeadcountError("--format says how --emit writes; give --emit DIR, or leave it out")
    emit = None if folder is None else partial(_emit, folder=folder, formats=formats, as_json=given.is_on("as_json"))
    return ask(plan, given, counts="fleets simulated", then=emit, engine=given.engine.without(*_FORMATS))


def _emit(answer: Result, *, folder: Path, formats: tuple[str, ...], as_json: bool) -> None:
    """Write the manifests, and say where they are; a plan without a fleet has said so."""
    assert isinstance(answer, PlanResult), "this command plans"
    if answer.best is None:
        click.echo("headcount: --emit: no fleet serves these users, so nothing is written", err=True)
        return
    for path in write(answer, folder, formats, "--emit"):
        click.echo(f"wrote {path}", err=as_json)
