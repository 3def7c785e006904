"""How far the memory model is off: `python benchmarks/memory.py --data DIR [--json]`.

DIR holds `measured/kv_capacity.csv`: what public vLLM servers logged at their start (llm-d-planner, Apache-2.0).
"Held out" judges every model by constants that were fitted without it: the activation peak's four by least squares,
the non-torch memory as the mean of the others with the same tensor parallelism.
"""

import argparse
import csv
import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from kvcache.catalog import find_gpu, load_model
from kvcache.memory import MemoryBudget, memory_budget
from kvcache.memory_terms import activation_peak_bytes, parse_version
from kvcache.parallelism import Parallelism

GIB = 2**30
FORMATS = {"-quantized.w8a8": "int8", "-quantized.w4a16": "gptq", "-fp8-dynamic": "fp8"}


@dataclass(frozen=True)
class Row:
    """One server: what it logged in GiB per GPU, what is predicted with the shipped constants."""

    budget: MemoryBudget
    weights_gib: float
    activation_gib: float
    non_torch_gib: float
    kv_tokens: float
    features: tuple[float, ...]  # of the activation peak: bytes for a coefficient of 1
    known_gib: float  # of the activation peak, without coefficients

    @property
    def model(self) -> str:
        return self.budget.model

    def kv_error(self, activation_gib: float, non_torch_gib: float) -> float:
        """Relative error of the KV-cache tokens, with these terms in place of the shipped ones."""
        b = self.budget
        shipped = b.activation_peak_bytes + b.non_torch_bytes
        available = b.available_kv_bytes + shipped - (activation_gib + non_torch_gib) * GIB
        blocks = b.layout.num_blocks([int(available)])
        return blocks // len(b.layout.groups) * b.block_size / self.kv_tokens - 1


def read_rows(data: Path) -> list[Row]:
    """The rows with a full log, of models known by name; vLLM 0.19 on H100 80 GB."""
    found = []
    with (data / "measured" / "kv_capacity.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["confidence"] == "full log":
                found.append(_row(row))
    return found


def _row(row: dict[str, str]) -> Row:
    name = row["model"].split("/")[-1].lower().replace("meta-llama", "llama")
    ending = next((end for end in FORMATS if name.endswith(end)), "")
    architecture = load_model(name.removesuffix(ending))
    budget = memory_budget(
        architecture,
        find_gpu("h100-sxm"),
        tensor_parallel_size=int(row["tp"]),
        quantization=FORMATS.get(ending),
        gpu_memory_utilization=float(row["gpu_memory_utilization"]),
        max_model_len=int(row["max_model_len"]),
        vllm_version=row["vllm_version"],
    )
    tokens, sequences = budget.max_num_batched_tokens, budget.max_num_seqs
    features = (1.0, sequences * architecture.vocab_size, 2.0 * tokens * architecture.hidden_size,
                1.0 if architecture.vision_parameters else 0.0)  # fmt: skip
    none = activation_peak_bytes(
        architecture,
        Parallelism(tensor_parallel_size=int(row["tp"])),
        max_num_batched_tokens=tokens,
        max_num_seqs=sequences,
        samples=True,
        version=parse_version(row["vllm_version"]),
    )
    shipped = float(np.dot(features, shipped_coefficients()))
    return Row(
        budget=budget,
        weights_gib=float(row["weights_gib"]),
        activation_gib=float(row["activation_peak_gib"]),
        non_torch_gib=float(row["non_torch_gib"]),
        kv_tokens=float(row["kv_tokens"]),
        features=features,
        known_gib=(none - shipped) / GIB,
    )


def shipped_coefficients() -> tuple[float, ...]:
    """In the order of `Row.features`."""
    from kvcache import memory_terms  # noqa: PLC0415  read where they are compared

    return (
        memory_terms.FORWARD_BASE_BYTES,
        memory_terms.SAMPLER_BYTES_PER_LOGIT,
        memory_terms.FORWARD_COPIES_OF_HIDDEN_STATES,
        memory_terms.VISION_ACTIVATION_BYTES,
    )


def held_out(row: Row, rows: Sequence[Row]) -> tuple[float, float]:
    """Activation peak with non-torch memory in GiB, predicted from the other models' rows."""
    others = [other for other in rows if other.model != row.model]
    matrix = np.array([other.features for other in others])
    scale = np.abs(matrix).max(axis=0)
    target = np.array([other.activation_gib - other.known_gib for other in others])
    solved, *_ = np.linalg.lstsq(matrix / scale, target, rcond=None)
    activation = float(np.dot(np.array(row.features) / scale, solved)) + row.known_gib
    alike = [other.non_torch_gib for other in others if other.budget.tp == row.budget.tp]
    return activation, statistics.mean(alike)


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Of absolute relative errors, in %."""
    absolute = [abs(error) * 100 for error in errors]
    return {"mean": statistics.mean(absolute), "median": statistics.median(absolute), "worst": max(absolute)}


Terms = Sequence[tuple[float, float]]  # activation peak, non-torch memory in GiB, row by row


def activation_errors(rows: Sequence[Row], terms: Terms) -> dict[str, float]:
    return summary([peak / row.activation_gib - 1 for row, (peak, _) in zip(rows, terms, strict=True)])


def kv_errors(rows: Sequence[Row], terms: Terms) -> dict[str, float]:
    return summary([row.kv_error(*both) for row, both in zip(rows, terms, strict=True)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/kv_capacity.csv")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    arguments = parser.parse_args()
    rows = read_rows(arguments.data)
    predicted = [held_out(row, rows) for row in rows]
    shipped = [(row.budget.activation_peak_bytes / GIB, row.budget.non_torch_bytes / GIB) for row in rows]
    found = {
        "weights": summary([row.budget.weights_bytes / GIB / row.weights_gib - 1 for row in rows]),
        "activation peak, fitted": summary(
            [a / row.activation_gib - 1 for row, (a, _) in zip(rows, shipped, strict=True)]
        ),
        "activation peak, held out": summary(
            [a / row.activation_gib - 1 for row, (a, _) in zip(rows, predicted, strict=True)]
        ),
        "KV tokens, fitted": kv_errors(rows, shipped),
        "KV tokens, held out": kv_errors(rows, predicted),
    }
    if arguments.json:
        print(json.dumps({"schema_version": 1, "servers": len(rows), "errors_percent": found}, indent=2))
        return
    print(f"{len(rows)} servers, {len({row.model for row in rows})} models, absolute error in %")
    for name, errors in found.items():
        print(f"{name:28}" + "".join(f"  {key} {value:6.2f}" for key, value in errors.items()))


if __name__ == "__main__":
    main()
