"""Measured kernels of one term beside what the term says of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import pandas as pd

from kvcache.formats.quantization import find_quantization
from kvcache.models.catalog import find_gpu, load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.architecture import Architecture
from simulator.latency.gpu_constants import Constants, constants_for
from simulator.latency.model import served_model
from simulator.latency.step_time import FloatArray
from simulator.latency.terms import Rank
from validation.constants.kernel_tables.tables import GPUS

MOST_TOKENS = 16384
Free = tuple[str, str]  # a constant with its key; "" where it has none
Predict = Callable[[Constants], FloatArray]


@dataclass(frozen=True, eq=False)
class Rows:
    """Measured kernels of one term, with what the term says of them under given constants.

    `shapes` holds the properties by which the error is broken down; the first is the one that fits are repeated along.
    """

    name: str
    measured_s: FloatArray
    shapes: pd.DataFrame
    term_s: Predict
    free: tuple[Free, ...]

    def log_errors(self, constants: Constants) -> FloatArray:
        """Natural logarithm of predicted over measured."""
        return np.log(self.term_s(constants) / self.measured_s)

    def where(self, mask: Any) -> "Rows":
        chosen = np.asarray(mask)
        return replace(
            self,
            measured_s=self.measured_s[chosen],
            shapes=self.shapes[chosen],
            term_s=lambda constants: self.term_s(constants)[chosen],
        )


def breakdown(rows: Rows, constants: Constants) -> dict[str, dict[str, tuple[float, int]]]:
    """Median signed error of the term in percent, with the number of rows, by every property of the shapes."""
    errors = pd.Series(100 * np.expm1(rows.log_errors(constants)), index=rows.shapes.index)
    return {
        str(column): {str(value): (float(part.median()), len(part)) for value, part in errors.groupby(values)}
        for column, values in rows.shapes.items()
    }


def lone_rank(
    gpu: str, arch: Architecture | None = None, *, quantization: str = "none", kv_dtype: str = "auto"
) -> Rank:
    """One GPU alone with this shape; sizes that no term looks at are 1."""
    arch = arch or load_model("llama-3.1-8b")
    served = served_model(
        architecture=arch,
        gpu=find_gpu(GPUS[gpu]),
        kv_cache_dtype="fp8" if kv_dtype == "fp8" else arch.dtype,
    )
    scheme = find_quantization("none" if quantization == "bf16" else quantization)
    own = constants_for(served.gpu)
    return Rank(served=served, scheme=scheme, parallelism=Parallelism(), constants=own)


def floats(table: pd.DataFrame, column: str) -> FloatArray:
    return table[column].to_numpy(dtype=np.float64)


def summed(causes: Mapping[str, FloatArray]) -> FloatArray:
    return cast(FloatArray, np.sum(list(causes.values()), axis=0))


def powers(values: Any, base: int) -> Any:
    """The largest power of `base` that each value reaches."""
    steps = np.floor(np.log(np.asarray(values, dtype=np.float64)) / np.log(base) + 1e-9)
    return pd.Series(float(base) ** steps, index=values.index)
