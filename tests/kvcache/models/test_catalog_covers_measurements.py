"""Every model or GPU that measured data names is known, or listed here with the reason."""

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest

from files.names import UnknownNameError
from kvcache.models.catalog import find_gpu, load_model

MEASURED = Path(__file__).parents[3] / "../shared/data/measured"
MODEL_COLUMNS = {
    "kv_capacity.csv": "model",
    "silicon_vllm_runs.csv": "model_path",
    "h100_experiments.csv": "model",
    "h100_aggregates_by_stage.csv": "model",
    "rtx_experiments.csv": "model",
}
GPU_COLUMNS = {
    "kv_capacity.csv": "gpu",
    "silicon_vllm_runs.csv": "system",
    "h100_experiments.csv": "gpu",
    "h100_aggregates_by_stage.csv": "hardware",
    "rtx_experiments.csv": "gpu",
}
# What the catalog does not have. A name that comes to be known must leave this list.
NOT_MODELLED = {
    "cyankiwi/gemma-4-31B-it-AWQ-4bit": "someone's AWQ of a catalog model: no config.json of it found",
    "mgoin/phi-2-super-marlin": "weights in Marlin's own layout, which vLLM no longer reads",
}
NOT_A_GPU = {"n/s (single)": "the thread does not say which"}

pytestmark = pytest.mark.skipif(not MEASURED.is_dir(), reason="the measured data is not at ../shared/data/measured")


def named(columns: dict[str, str]) -> dict[str, str]:
    """Name → the file that has it."""
    found = {}
    for file, column in columns.items():
        with (MEASURED / file).open(newline="", encoding="utf-8") as rows:
            found.update({row[column]: file for row in csv.DictReader(rows)})
    return found


def gpu_folders() -> Iterator[str]:
    yield from (path.name for path in (MEASURED / "op_tables").iterdir() if path.is_dir())
    yield from (path.stem for path in (MEASURED / "gpu_specs").glob("*.yaml"))


def test_every_model_that_was_measured_loads() -> None:
    names = named(MODEL_COLUMNS)
    assert len(names) >= 40
    unknown = {name: file for name, file in names.items() if not _loads(name)}
    assert set(unknown) == set(NOT_MODELLED)


def test_a_measured_checkpoint_in_another_format_keeps_its_format() -> None:
    formats = {"w8a8": "int8", "w4a16": "w4a16", "fp8-dynamic": "fp8", "-fp8": "fp8-block", "gptq": "gptq"}
    for name in set(named(MODEL_COLUMNS)) - set(NOT_MODELLED):
        expected = next((scheme for ending, scheme in formats.items() if name.lower().endswith(ending)), None)
        if expected is not None:
            assert load_model(name).native_quantization == expected, name


def test_every_gpu_that_was_measured_is_found() -> None:
    names = {*named(GPU_COLUMNS), *gpu_folders()}
    assert len(names) >= 18
    unknown = {name for name in names if not _is_gpu(name)}
    assert unknown == set(NOT_A_GPU)


def test_measured_totals_of_memory_are_those_of_the_gpu_found() -> None:
    """`gpu_total_gib` is what the driver said, by driver version a few hundredths apart."""
    with (MEASURED / "kv_capacity.csv").open(newline="", encoding="utf-8") as rows:
        totals = {(row["gpu"], row["gpu_total_gib"]) for row in csv.DictReader(rows) if row["gpu_total_gib"]}
    assert totals
    for gpu, total_gib in totals:
        assert find_gpu(gpu).memory_bytes / 2**30 == pytest.approx(float(total_gib), abs=0.05), gpu


def _loads(name: str) -> bool:
    try:
        return load_model(name) is not None
    except UnknownNameError:
        return False


def _is_gpu(name: str) -> bool:
    try:
        return find_gpu(name) is not None
    except UnknownNameError:
        return False
