"""What `--strict` refuses: anything assumed where it could be known."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvcache.models.architecture import Architecture
    from simulator.latency.model import LatencyModel

OUTSIDE_CALIBRATION = 4  # exit code


def check_architecture(architecture: "Architecture", strict: bool) -> None:
    """Raise ValueError under --strict where the model's shape rests on an assumption."""
    if strict and architecture.assumptions:
        named = "; ".join(f"{name} ({value}): {why}" for name, value, why in architecture.assumptions)
        raise ValueError(
            f"--strict: model {architecture.name!r} rests on an assumption: {named}. "
            "Take a model whose model_type is known, or leave --strict out"
        )


def assumed_notes(assumptions: Iterable[tuple[str, str, str]]) -> list[str]:
    """A line for each assumption about the model's shape."""
    return [f"assumed: {name}, {value} ({why})" for name, value, why in assumptions]


def assumptions_json(rows: Iterable[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Assumptions as JSON."""
    return [{"name": name, "value": value, "source": source} for name, value, source in rows]


def outside_calibration(latency: "LatencyModel", gpu: str, strict: bool) -> bool:
    """Whether --strict refuses step times outside their profile, or neither measured on this GPU nor given.

    It says so on stderr.
    """
    if strict and latency.warnings:
        print(f"headcount: --strict: {'; '.join(latency.warnings)}", file=sys.stderr)
        return True
    refused = strict and not (latency.is_measured or latency.is_given)
    if refused:
        print(
            f"headcount: --strict: step times of {gpu} are scaled from its specifications, not measured; take a "
            "measured GPU, give --latency-model constant with your own --step-s, or leave --strict out",
            file=sys.stderr,
        )
    return refused
