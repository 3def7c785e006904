"""Latency forms, found by name: one file each, imported when asked for."""

from inspect import isfunction, signature
from pathlib import Path

import numpy as np

from files.errors import HeadcountError
from files.names import value_shown
from files.registry import Registry
from files.schema import NotNegative, typed
from simulator.latency.model import LatencyModel, ServedModel
from simulator.latency.step_time import StepTimes

DEFAULT_FORM = "physical"
FORMS = Registry(
    what="latency model",
    section="latency_models",
    folder=Path(__file__).parent,
    package=__name__,
    needs=("latency_model",),
)


def latency_model(served: ServedModel, *, form: str = DEFAULT_FORM, **options: object) -> LatencyModel:
    """The step times of a deployment by the form of that name, or of `module:function` outside this package.

    A form is a function `latency_model(served, **options)`. Raises `UnknownNameError` with the nearest names,
    ValueError where that is no form or fails.
    """
    found = FORMS.load(form)
    function = found if ":" in form else found.latency_model
    if not isfunction(function) or next(iter(signature(function).parameters), "") != "served":
        raise HeadcountError(
            f"latency model {form!r}: {value_shown(function)} is no function latency_model(served); give one"
        )
    try:
        signature(function).bind(served, **options)
    except TypeError as error:
        raise HeadcountError(f"latency model {form!r}: {error}; it takes no such option") from None
    with FORMS.running(form):
        return _checked(function(served, **options), served)


def _checked(model: object, served: ServedModel) -> LatencyModel:
    """Raises HeadcountError where a form hands over something else, or too short a table."""
    if not isinstance(model, LatencyModel) or not isinstance(model.step_times, StepTimes):
        raise HeadcountError(f"it returned {value_shown(model)}, not a LatencyModel with StepTimes")
    times, sizes = model.step_times, served.args
    tokens = sizes.max_num_batched_tokens + 1
    least = {"decode": tokens, "prefill": tokens, "floor": tokens, "sampling": sizes.max_num_seqs + 1}
    if not callable(times.shared):
        raise HeadcountError("step_times.shared is no function of the tokens of all ranks; give one, or leave it out")
    for name, value in vars(times).items():
        shape = np.shape(value)
        if name in least and (len(shape) != 1 or shape[0] < least[name]):
            raise HeadcountError(f"step_times.{name} has the shape {shape}; it needs {least[name]:,} numbers")
        if not shape and name != "shared":
            typed(float(value), NotNegative, "step_times", name)
    return model
