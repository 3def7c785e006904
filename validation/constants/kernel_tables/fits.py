"""Constants at which the terms are nearest to measured kernel times."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from kvcache.models.catalog import find_gpu
from kvcache.releases import precedes
from simulator.latency.covariance import MOST_OF_PEAK
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.step_time import FloatArray
from validation.constants.kernel_tables.all_reduces import all_reduce_rows
from validation.constants.kernel_tables.attention import decode_rows, latent_rows, prefill_rows
from validation.constants.kernel_tables.experts import expert_rows
from validation.constants.kernel_tables.gemms import gemm_rows
from validation.constants.kernel_tables.rows import Rows
from validation.constants.kernel_tables.tables import GPUS, releases

CHANGED, OLDER_FORMATS = "0.24.0", ("bf16", "fp8")  # before which tables, in what, experts have other kernels
# Where the search starts for a constant that is shipped as nothing, or as bounding nothing.
FIRST_GUESS = {
    "prefill_attention_extra_positions": 300.0,
    "decode_attention_compute_share": 0.2,
    "expert_activation_bytes_per_element": 8.0,
    "expert_read_s": 5e-8,
}
LOSS_SCALE = 0.1  # log residuals beyond this count linearly
EDGE = 1e-9  # by which a search may pass a bound that it starts at
MOST_ROWS = 6000  # of a fit: more change the third digit


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """One constant as the tables ask for it; `low`, `high`: the same from each shape class alone."""

    gpu: str
    constant: str
    key: str
    value: float
    low: float
    high: float
    rows: int
    median_error_percent: float
    shipped: float
    shipped_error_percent: float


def all_rows(data: Path, gpu: str) -> Iterator[Rows]:
    """Every term that this GPU's tables can judge, fits in the order in which they build on each other."""
    builders: Sequence[Callable[[Path, str], Iterator[Rows]]] = (
        gemm_rows,
        decode_rows,
        latent_rows,
        prefill_rows,
        all_reduce_rows,
        expert_rows,
    )
    for builder in builders:
        yield from builder(data, gpu)


def fit_gpu(data: Path, gpu: str) -> tuple[list[Fitted], list[tuple[Rows, Constants]]]:
    """Every constant that the tables identify, with the rows under the fitted constants."""
    shipped = constants = constants_for(find_gpu(GPUS[gpu]))
    found: list[Fitted] = []
    judged: list[tuple[Rows, Constants]] = []
    for rows in all_rows(data, gpu):
        constants, fitted = fit(rows, constants, shipped, GPUS[gpu])
        again = {(item.constant, item.key) for item in fitted}
        found = [item for item in found if (item.constant, item.key) not in again] + fitted
        judged.append((rows, constants))
    return found, judged


def fit_older(data: Path, gpu: str, found: Sequence[Fitted]) -> list[Fitted]:
    """What tables before `CHANGED` say of experts, where there are any; `found`: what the newest of all say."""
    constants = shipped = constants_for(find_gpu(GPUS[gpu]))
    for item in found:
        constants = _set(constants, item.constant, item.key, item.value)
    older: list[Fitted] = []
    if all(precedes(name, CHANGED) for name in releases(data, gpu, "moe")):
        return []
    for rows in expert_rows(data, gpu, before=CHANGED):
        # Other formats' older tables are of kernels that nobody chose: several times slower than models were served.
        if any(key in OLDER_FORMATS for _, key in rows.free):
            constants, fitted = fit(rows, constants, shipped, GPUS[gpu])
            older = [
                item for item in older if (item.constant, item.key) not in {(one.constant, one.key) for one in fitted}
            ]
            older += fitted
    return [
        item for item in older if item.key in OLDER_FORMATS or item.constant == "expert_activation_bytes_per_element"
    ]


def fit(rows: Rows, constants: Constants, shipped: Constants, gpu: str) -> tuple[Constants, list[Fitted]]:
    """`constants` with the free ones of these rows fitted, and what they are."""
    if not rows.free:
        return constants, []
    best = fit_constants(_thinned(rows), constants)
    splits = rows.shapes.iloc[:, 0]
    parts = [
        fit_constants(_thinned(part), best)
        for value in sorted(splits.unique())
        if len((part := rows.where(splits == value)).measured_s) > 5 * len(rows.free)
    ]
    error, old = (100 * float(np.median(np.abs(np.expm1(rows.log_errors(item))))) for item in (best, shipped))
    return best, [
        Fitted(
            gpu=gpu,
            constant=name,
            key=key,
            value=_get(best, name, key),
            low=min((_get(part, name, key) for part in parts), default=_get(best, name, key)),
            high=max((_get(part, name, key) for part in parts), default=_get(best, name, key)),
            rows=len(rows.measured_s),
            median_error_percent=error,
            shipped=_get(shipped, name, key),
            shipped_error_percent=old,
        )
        for name, key in rows.free
        if bounds_kernels(rows, best, name, key)
    ]


def fit_constants(rows: Rows, constants: Constants) -> Constants:
    """The free constants at the least robust sum of squared log errors, searched from every first guess."""
    ours = np.array([_get(constants, name, key) for name, key in rows.free])
    other = np.array([FIRST_GUESS.get(name, value) for (name, _), value in zip(rows.free, ours, strict=True)])

    def with_values(logs: FloatArray) -> Constants:
        changed = constants
        for (name, key), value in zip(rows.free, np.exp(logs), strict=True):
            changed = _set(changed, name, key, float(value))
        return changed

    def errors(logs: FloatArray) -> FloatArray:
        return rows.log_errors(with_values(logs))

    most = np.log([_most(name, key) for name, key in rows.free])
    least = np.array([0.0 if name.endswith("_overlap_power") else -np.inf for name, _ in rows.free])  # the sum
    searches = [
        least_squares(
            errors,
            start,
            bounds=(np.maximum(start - 3, least - EDGE), np.minimum(start + 3, most + EDGE)),
            loss="soft_l1",
            f_scale=LOSS_SCALE,
        )
        for start in (np.minimum(np.log(values), most) for values in {tuple(ours), tuple(other)} if min(values) > 0)
    ]
    return with_values(min(searches, key=lambda found: float(found.cost)).x)


def _most(name: str, key: str) -> float:
    """Of a share: no kernel passes its peak. Of mxfp4's computing, told by the 16-bit peak: that of 8 bits."""
    if name.endswith("_bandwidth_share") or name == "expert_compute_share":
        return MOST_OF_PEAK * (2 if name == "expert_compute_share" and key == "mxfp4" else 1)
    return np.inf


def bounds_kernels(rows: Rows, constants: Constants, name: str, key: str) -> bool:
    """Whether the times of these rows depend on the constant at all."""
    nudged = _set(constants, name, key, 0.99 * _get(constants, name, key))
    return bool(np.any(rows.term_s(nudged) != rows.term_s(constants)))


def _thinned(rows: Rows) -> Rows:
    """At most `MOST_ROWS`, the same on every run."""
    if len(rows.measured_s) <= MOST_ROWS:
        return rows
    chosen = np.random.default_rng(1).permutation(len(rows.measured_s)) < MOST_ROWS
    return rows.where(chosen)


def _get(constants: Constants, name: str, key: str) -> float:
    value = getattr(constants, name)
    return float(value[key] if key else value)


def _set(constants: Constants, name: str, key: str, value: float) -> Constants:
    changes: dict[str, Any] = {name: {**getattr(constants, name), key: value} if key else value}
    return replace(constants, **changes)
