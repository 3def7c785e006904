"""Files of one simulated load: every request, every step."""

import csv
import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

from files.errors import HeadcountError
from files.outputs import check_out_file, whole_file
from headcount.inputs.fields import Inputs, given
from headcount.inputs.out_path import OutPath
from simulator.cancellations import is_cancelled
from simulator.core import layout
from simulator.results import request_times
from simulator.simulation import Simulation

REQUEST_COLUMNS = (
    "id", "replica", "arrival_s", "scheduled_s", "first_token_s", "finish_s", "ttft_s", "tpot_s", "e2e_s",
    "prompt_tokens", "output_tokens", "cached_tokens", "preemptions", "warmup",
)  # fmt: skip
CANCELLED_COLUMNS = ("retry_of", "cancelled")  # where clients do not wait for ever


@dataclass(frozen=True, kw_only=True)
class OutputsInput(Inputs, heading="Output"):
    """Files to write beside the answer; each appears whole or not at all."""

    requests_out: Path | None = given(OutPath(), "Write a CSV file with the times of each request.")
    steps_out: Path | None = given(OutPath(), "Write a JSON Lines file with the decisions of each step.")

    def check(self, num_engines: int) -> None:
        """Raise HeadcountError before any work if a file cannot be written."""
        for option, path in (("--requests-out", self.requests_out), ("--steps-out", self.steps_out)):
            if path is not None:
                check_out_file(option, path)
        if self.steps_out is not None and num_engines > 1:
            raise HeadcountError("--steps-out shows one engine's decisions; use it with --replicas 1 without -dp")

    def write(self, simulation: Simulation, start_s: float) -> None:
        """Requests that arrived; those before `start_s` are marked as of the warm-up."""
        if self.requests_out is not None:
            with whole_file(self.requests_out) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(_request_rows(simulation, start_s))
        if self.steps_out is not None:
            with whole_file(self.steps_out) as temporary, temporary.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(step.to_json()) + "\n" for step in simulation.steps)


def _request_rows(simulation: Simulation, start_s: float) -> Iterator[Iterable[object]]:
    """The names, then each request's values; what is not known is empty."""
    requests, times = simulation.requests, request_times(simulation.requests)
    columns: dict[str, object] = {
        "id": range(len(requests)), "ttft_s": times.ttft_s, "tpot_s": times.tpot_s, "e2e_s": times.e2e_s,
        "prompt_tokens": requests["prompt"], "output_tokens": requests["output"],
        "warmup": (requests["arrival_s"] < start_s).astype(int),
    }  # fmt: skip
    names, count = list(REQUEST_COLUMNS), simulation.table.num_requests
    if simulation.table.tenancy is not None:
        names += ("tenant",)
        tenants = [tenant.name for tenant in simulation.table.tenancy.tenants]
        columns |= {"tenant": [tenants[of] for of in simulation.table.tenancy.of] * simulation.table.num_attempts}
    if simulation.table.waits is not None or len(simulation.arrays.gateways):
        names += CANCELLED_COLUMNS
        columns |= {"retry_of": [number - count if number >= count else math.nan for number in range(len(requests))]}
        columns |= {"cancelled": is_cancelled(requests).astype(int)}
    yield names
    cells = [columns[name] if name in columns else requests[name] for name in names]
    rows = zip(*(column.tolist() if hasattr(column, "tolist") else column for column in cells), strict=True)
    for row in compress(rows, requests["status"] != layout.NOT_ARRIVED):
        yield ("" if value != value else value for value in row)  # noqa: PLR0124  of a number: whether it is one
