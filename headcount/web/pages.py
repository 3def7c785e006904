"""The pages as HTML, everything escaped that people or files gave."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from headcount.cli.main import COMMANDS
from headcount.web.fields import QUESTIONS, TITLES, Field, command_of, fields_of
from headcount.web.guard import IS_PUBLIC
from headcount.web.scenario import UPLOAD, Scenario


@lru_cache(maxsize=1)
def _environment() -> Environment:
    found = Environment(
        loader=ChoiceLoader([PackageLoader("headcount.web"), PackageLoader("headcount.views.report")]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.globals["questions"] = {name: COMMANDS.get(name) or first_sentence(name) for name in QUESTIONS}
    found.globals["titles"] = TITLES
    found.filters["file_name"] = lambda value: match[2] if (match := UPLOAD.fullmatch(value)) else ""
    return found


def render(name: str, **values: object) -> str:
    """A file of `headcount/web/templates`, filled in."""
    return _environment().get_template(name).render(is_public=IS_PUBLIC.get(), **values)


def first_sentence(question: str) -> str:
    """What the command's help begins with."""
    return " ".join((command_of(question).help or "").split()).partition(". ")[0] + "."


def form_of(question: str, given: Mapping[str, str]) -> dict[str, object]:
    """What the form's template needs: fields with the values that they show."""
    fields = fields_of(question)
    others = sorted((field for field in fields if not field.is_first), key=lambda field: field.heading)
    groups = [(heading, list(inside)) for heading, inside in groupby(others, key=lambda field: field.heading)]
    is_more_given = any(given.get(field.name) for field in others)
    return {
        "question": question,
        "first": [field for field in fields if field.is_first],
        "groups": groups,
        "given": given,
        "is_more_given": is_more_given,
    }


def values_of(scenario: Scenario) -> dict[str, str]:
    """As the form's fields show them."""
    return {name: "\n".join(values) for name, values in scenario.values}


def shown_as_given(question: str, pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """What a refused form held, so that nobody types it again."""
    known: dict[str, Field] = {field.name: field for field in fields_of(question)}
    return {name: value[:20_000] for name, value in pairs if name in known}
