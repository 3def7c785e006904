"""What was not measured is not called measured, and its interval is no narrower."""

import pytest

from kvcache.gpus.gpu import find_gpu, gpu_names
from simulator.deployment import resolve
from simulator.latency.evidence import EVERY_KERNEL, SCALED_TPOT, SCALED_TTFT
from simulator.latency.gpu_constants import constants_for
from simulator.latency.model import LatencyModel


def latency(model: str, gpu: str, tp: int = 1) -> LatencyModel:
    return resolve(model, gpu, tensor_parallel_size=tp, max_model_len=4096).latency


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "parts"),
    [
        ("qwen2.5-3b", "h100-sxm", 1, ()),
        ("qwen3-30b-a3b-fp8", "h200-sxm", 2, ()),
        ("qwen2.5-3b", "gb200", 1, ()),  # runs of its family
        ("qwen2.5-3b", "l40s", 2, ()),  # kernel tables of the card
        ("qwen2.5-3b", "rtx-pro-6000", 1, ()),
        ("qwen2.5-3b", "rtx-pro-6000", 2, ("all-reduces over PCIe",)),
        ("qwen3-30b-a3b-fp8", "rtx-pro-6000", 2, ("all-reduces over PCIe", "experts", "fp8-block weights")),
        ("qwen2.5-3b", "h100-pcie", 2, ("all-reduces over PCIe",)),
        ("qwen2.5-3b", "l4", 1, (EVERY_KERNEL,)),
        ("qwen2.5-3b", "a10g", 1, (EVERY_KERNEL,)),
        ("qwen2.5-3b", "rtx-5090", 1, (EVERY_KERNEL,)),
        ("qwen2.5-3b", "mi300x", 1, (EVERY_KERNEL,)),
    ],
)
def test_the_parts_that_no_measurement_covers_are_named(model: str, gpu: str, tp: int, parts: tuple[str, ...]) -> None:
    found = latency(model, gpu, tp)
    assert found.unmeasured == parts
    assert not (found.unmeasured and found.is_measured)


@pytest.mark.parametrize("gpu", gpu_names())
def test_an_unmeasured_part_never_narrows_an_interval(gpu: str) -> None:
    found = latency("qwen2.5-0.5b", gpu)
    if found.unmeasured:
        assert found.tpot_log_error.half_width >= SCALED_TPOT.half_width
        assert found.ttft_log_error.half_width >= SCALED_TTFT.half_width


def test_a_scaled_card_is_as_uncertain_as_one_of_an_unknown_family() -> None:
    generic = constants_for(find_gpu("mi300x"))
    assert (generic.tpot_log_error, generic.ttft_log_error) == (SCALED_TPOT, SCALED_TTFT)
