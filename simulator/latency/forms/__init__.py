"""Latency forms, found by name: one file each, imported when asked for."""

from inspect import signature
from pathlib import Path
from typing import Any

from boundary.names import UnknownNameError
from boundary.registry import Registry
from simulator.latency.model import LatencyModel, ServedModel

DEFAULT_FORM = "physical"
FORMS = Registry(what="latency model", section="latency_models", folder=Path(__file__).parent, package=__name__)


def latency_model(served: ServedModel, *, form: str = DEFAULT_FORM, **options: Any) -> LatencyModel:
    """The step times of a deployment by the form of that name, or of `module:function` outside this package.

    A form is a function `latency_model(served, **options)`. Raises `UnknownNameError` with the nearest names.
    """
    found = FORMS.load(form)
    try:
        function = found if ":" in form else found.latency_model
        signature(function).bind(served, **options)
    except (AttributeError, ValueError, TypeError) as error:
        raise UnknownNameError(
            f"no latency model {form!r}: {error}; give module:function, called with a ServedModel"
        ) from None
    model: LatencyModel = function(served, **options)
    return model
