"""What a result says when it lies outside its latency profile."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.latency.model import AverageStep, LatencyModel


def warn_outside_profile(latency: "LatencyModel", steps: Iterable["AverageStep"]) -> bool:
    """Tell on stderr what of the deployment or of these average steps the profile was not fitted on, if anything."""
    from simulator.latency.model import steps_outside  # noqa: PLC0415  loaded by the command that calls this

    found = dict.fromkeys([*latency.warnings, *(text for step in steps for text in steps_outside(latency, step))])
    for text in found:
        print(f"headcount: warning: {text}", file=sys.stderr)
    return bool(found)
