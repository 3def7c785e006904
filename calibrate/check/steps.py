"""Recorded engine steps beside the simulator's step times."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd

from calibrate.check.replay import deployment_of, given
from calibrate.fit.steps import steps_of
from calibrate.recording import EVENLY, Recording
from files.errors import HeadcountError
from kvcache.models.catalog import is_other_model, load_model
from simulator.deployment import Deployment
from simulator.engines.argument import Settings
from simulator.engines.vllm.environment import EVEN_ROUTING, ROUTING, Variables
from simulator.latency.model import LatencyModel

MIN_STEPS = 3  # of a median
FULL = 0.95  # of the most tokens of a step: it counts as full of prompt tokens from there
DECODES, CHUNKS = "decodes", "prompt_chunks"


def recorded_deployment(recording: Recording, values: Settings) -> Deployment:
    """What was recorded, by the recording's own options and the user's, which win.

    Raises HeadcountError for another model than the recording's, or where neither names model and GPU.
    """
    named, asked = recording.options.get("model"), values.get("model")
    if named and asked and is_other_model(named, load_model(asked)):
        raise HeadcountError(f"--model {asked} is not the recording's, which is of {named}; leave --model out")
    options = given(recording.options, values)
    if blocks := recording.environment.get("num_gpu_blocks"):
        options.setdefault("num_gpu_blocks_override", int(blocks))
    own = Variables().read(options.get("environment", ()))
    if recording.environment.get("experts") == EVENLY and not any(each.startswith(f"{ROUTING}=") for each in own):
        own = (*own, f"{ROUTING}={EVEN_ROUTING}")
    options["environment"] = own
    return deployment_of("the recording", options)


def compared(recording: Recording, deployment: Deployment) -> pd.DataFrame:
    """Timed steps with `predicted_s`, by the deployment's step times."""
    steps = steps_of(recording, deployment.served)
    timed = recording.steps[recording.steps["cycle_s"] > 0].reset_index(drop=True)
    named = timed if "load" in timed else timed.assign(load="")
    return named.assign(predicted_s=deployment.latency.step_times.steps_s(steps.sums))


def decodes(table: pd.DataFrame) -> pd.DataFrame:
    """Medians over steps that hold decodes alone, one row for each load and batch, with the error in %."""
    return _medians(table[table["prefill_tokens"] == 0], "load", "sequences")


def chunks(table: pd.DataFrame) -> pd.DataFrame:
    """Medians over steps that are full of prompt tokens, one row for each load."""
    return _medians(table[table["prefill_tokens"] > FULL * table["tokens"].max()], "load", "tokens")


def _medians(steps: pd.DataFrame, *by: str) -> pd.DataFrame:
    groups = steps.groupby(list(by), sort=False)[["decode_context", "cycle_s", "predicted_s"]]
    found = groups.median()[groups.size() >= MIN_STEPS]
    return found.assign(error=(found["predicted_s"] / found["cycle_s"] - 1) * 100)


@dataclass(frozen=True, kw_only=True, eq=False)
class CheckedSteps:
    """A recording's steps by what they hold, one row for each load and batch: medians of both times, and the error."""

    deployment: Deployment
    num_steps: int
    tables: Mapping[str, pd.DataFrame]  # by DECODES, CHUNKS; those that have rows
    excluded: Mapping[str, int]  # left out, by reason

    @property
    def decode_ratio(self) -> float | None:
        """Median of measured over simulated decodes; None without decodes."""
        rows = self.tables.get(DECODES)
        return None if rows is None else float(np.median(rows["cycle_s"] / rows["predicted_s"]))

    @property
    def limit(self) -> float:
        """The factor that 90 % of servers' decodes lie within: the median over the batches."""
        return float(np.exp(np.median(_log_half_widths(self.deployment.latency, self.tables[DECODES]))))

    @property
    def is_expected(self) -> bool | None:
        """Whether the decodes are as fast as they should be; None where nothing is expected of them."""
        ratio = self.decode_ratio
        if ratio is None or self.deployment.latency.is_given:
            return None
        return 1 / self.limit <= ratio <= self.limit

    def summary(self) -> dict[str, dict[str, float]]:
        """Medians of absolute and signed errors in percent over the rows, and the largest absolute one."""
        return {
            name: {
                "rows": float(len(rows)),
                "median_percent": float(rows["error"].abs().median()),
                "bias_percent": float(rows["error"].median()),
                "largest_percent": float(rows["error"].abs().max()),
            }
            for name, rows in self.tables.items()
        }


def check_steps(recording: Recording, values: Settings) -> CheckedSteps:
    """Raises HeadcountError where the recording does not say enough, or holds no steps that are alike."""
    deployment = recorded_deployment(recording, values)
    table = compared(recording, deployment)
    found = {name: rows for name, rows in ((DECODES, decodes(table)), (CHUNKS, chunks(table))) if len(rows)}
    if not found:
        raise HeadcountError(
            f"the recording holds no {MIN_STEPS} timed steps of one load and batch, whose median could be compared; "
            "record more steps"
        )
    return CheckedSteps(deployment=deployment, num_steps=len(table), tables=found, excluded=recording.excluded)


def _log_half_widths(model: LatencyModel, rows: pd.DataFrame) -> list[float]:
    return [model.tpot_log_error.log_half_width_at(float(count)) for count in rows.index.get_level_values("sequences")]
