"""Measured runs, and what wins over what their files say of the server."""

from dataclasses import dataclass

from headcount.inputs.engine import EngineInput
from headcount.inputs.fields import Inputs, given
from headcount.inputs.load import LENGTH_SPREAD
from headcount.inputs.reading.deployments import given_arguments
from simulator.engines.values import Duration, Text


@dataclass(frozen=True, kw_only=True)
class MeasuredInput(Inputs, heading="Measurements"):
    """How files of measurements are read; the deployment, where they do not say it."""

    format_name: str | None = given(
        Text(names_code=True),
        "Format of all files: a name, or module:Name.",
        default_text="found from their content",
        flag="format",
    )
    length_spread: float | None = given(
        LENGTH_SPREAD,
        "Spread of lengths, for files with mean lengths only. 0.8: lengths are drawn around the mean, the shortest "
        "0.8 × the longest.",
        default_text="1",
    )
    warmup_s: float | None = given(
        Duration(),
        "Leave out requests sent within this time after the first, when the server is cold.",
        default_text="0s",
        flag="warmup",
    )
    model: str | None = given(
        Text(may_be_path=True),
        "Model name, if the files do not give it.",
        heading="Deployment",
        default_text="the files'",
    )
    gpu: str | None = given(
        Text(),
        "GPU name, such as h100-sxm, if the files do not give it.",
        heading="Deployment",
        default_text="the files'",
    )

    def with_engine(self, engine: EngineInput) -> dict[str, object]:
        """What wins over the files. Raises HeadcountError for what is out of range."""
        names = ("model", "gpu", "length_spread", "warmup_s")
        own = {name: getattr(self, name) for name in names}
        return given_arguments({**engine.arguments, **own}, engine.startup_log)
