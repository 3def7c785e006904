"""Engine steps of a real vLLM, as they were recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from simulator.engines.argument import Settings

# Columns of `Recording.steps`, one row per step that scheduled something, in order.
STEP_COLUMNS = (
    "start_s",  # when the step was scheduled, from the recording's begin
    "cycle_s",  # from one step's output to the next one's: what the step took; NaN after an idle gap
    "schedule_s",  # in the scheduler; NaN where it was not measured
    # Sums over the batch, as `simulator.latency.step_time.BatchSums` counts them.
    "tokens",
    "sequences",
    "sampled",
    "decode_context",
    "window_context",
    "prefill_tokens",
    "prefill_work",
    "window_prefill_work",
)

EVENLY = "evenly"  # what `environment` says under "experts" where tokens chose them so: routers of random weights


@dataclass(frozen=True, kw_only=True, eq=False)
class Recording:
    """Steps of one deployment.

    `options` are the engine's settings under the command line's names here; `environment` names versions, device,
    clock (`wall` or `thread_cpu`), number of KV blocks, how tokens chose experts; `excluded` counts steps that were
    left out by reason.
    """

    options: Settings
    environment: Settings
    steps: pd.DataFrame
    excluded: Mapping[str, int] = field(default_factory=dict)
