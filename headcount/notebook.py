"""Sliders of a notebook over `capacity`: GPUs, context and limits are moved, and the answer follows."""

from collections.abc import Sequence
from typing import Any, Final

from files.errors import HeadcountError
from headcount.queries.capacity import CapacityResult, capacity

_CONTEXT: Final = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
_TTFT_S: Final = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
_TPOT_S: Final = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2)
_LABEL_WIDTH: Final = {"description_width": "9em"}


def sliders(model: str, gpu: str, *, gpus: Sequence[int] = (1, 2, 4, 8), **options: Any) -> Any:
    """`capacity` with a slider each for GPUs, context (a factor on the traffic's) and both limits of the SLO.

    Show it as the last line of a notebook cell; `options` are those of `capacity`. A slider's new place is simulated
    once, then read from the cache. Its `result` is the answer that is shown. Raises HeadcountError without ipywidgets.
    """
    try:
        from ipywidgets import SelectionSlider, interactive  # noqa: PLC0415  of notebooks alone
    except ImportError:
        raise HeadcountError("sliders need ipywidgets: pip install 'headcount[notebook]'") from None

    def slider(label: str, values: Sequence[float], at: float, unit: str = "") -> Any:
        shown = [(f"{value:g}{unit}", value) for value in sorted({*values, at})]
        return SelectionSlider(options=shown, value=at, description=label, continuous_update=False, style=_LABEL_WIDTH)

    def answer(gpus: int, context: float, ttft_s: float, tpot_s: float) -> CapacityResult | str:
        asked = {**options, "gpus": [gpus], "context_scale": context, "ttft_s": ttft_s, "tpot_s": tpot_s}
        try:
            return capacity(model, gpu, **asked)
        except HeadcountError as error:
            return str(error)

    return interactive(
        answer,
        gpus=slider("GPUs", gpus, gpus[0]),
        context=slider("context", _CONTEXT, options.pop("context_scale", None) or 1.0, " ×"),
        ttft_s=slider("TTFT at most", _TTFT_S, options.pop("ttft_s", None) or 1.0, " s"),
        tpot_s=slider("TPOT at most", _TPOT_S, options.pop("tpot_s", None) or 0.05, " s"),
    )
