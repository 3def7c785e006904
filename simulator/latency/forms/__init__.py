"""Latency forms, found by name: one file each, imported when asked for."""

from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from kvcache.errors import UnknownNameError, unknown_name
from simulator.latency.model import Deployment, LatencyModel

DEFAULT_FORM = "physical"


def latency_form_names() -> tuple[str, ...]:
    """Every form that has a file here."""
    return tuple(sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py")))


def latency_model(deployment: Deployment, *, form: str = DEFAULT_FORM, **options: Any) -> LatencyModel:
    """The step times of a deployment by the form of that name, or of `module:function` outside this package.

    A form is a function `latency_model(deployment, **options)`. Raises `UnknownNameError` with the nearest names.
    """
    module, _, function = form.partition(":")
    if not function:
        if form not in latency_form_names():
            raise unknown_name("latency model", form, latency_form_names(), "simulator/latency/forms", ".py")
        module, function = f"simulator.latency.forms.{form}", "latency_model"
    try:
        found = getattr(import_module(module), function)
        signature(found).bind(deployment, **options)
    except (ImportError, AttributeError, ValueError, TypeError) as error:
        raise UnknownNameError(
            f"no latency model {form!r}: {error}; give module:function, called with a deployment"
        ) from None
    model: LatencyModel = found(deployment, **options)
    return model
