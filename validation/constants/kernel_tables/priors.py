"""Fitted constants as a file of priors."""

from collections.abc import Iterator, Mapping, Sequence

from validation.constants.kernel_tables.fits import Fitted
from validation.constants.kernel_tables.tables import GPUS

# Keys that no table has go by those that are most like them: where a format has no kernels of its own, by what it is
# unpacked to.
_MULTIPLIES_ALIKE = {"fp16": "bf16", "int8": "fp8"}
_EXPERTS_ALIKE = {"int8": "fp8", "fp4": "int4"}
ALIKE = {
    "gemm_bandwidth_share": _MULTIPLIES_ALIKE,
    "gemm_compute_share": _MULTIPLIES_ALIKE,
    "expert_bandwidth_share": _EXPERTS_ALIKE,
    "expert_read_s": _EXPERTS_ALIKE,
    "expert_overlap_power": _EXPERTS_ALIKE,
    "expert_tile_reads": _EXPERTS_ALIKE,
    "expert_compute_share": _EXPERTS_ALIKE,
    "expert_start_s": _EXPERTS_ALIKE,
    "expert_activation_bytes_per_element": _EXPERTS_ALIKE,
}
# A start below the smallest kernel of any table is a cache's doing: repeated kernels find small weights in the L2 of an
# L40S (96 MB). Neither it nor what multiplies it is written down.
SMALLEST_KERNEL_S = 1.7e-6
# Public launch scripts turn FlashInfer's experts off by name for vLLM 0.17: they were the default by then.
SERVED_BEFORE = "0.16.0"  # by the kernels of the older tables, whoever measured them later
FEWEST_ROWS = 20  # of a fit that is written down


def prior_text(gpu: str, fitted: Sequence[Fitted], older: Sequence[Fitted], tiles: Mapping[int, float]) -> str:
    """The fitted constants as a file of `validation/constants/priors`."""
    lines = [
        f"# {GPUS[gpu]}, written by validation/constants/kernel_tables from vLLM's kernel times",
        "# (aiconfigurator-core 0.12.0, NVIDIA, Apache-2.0). What is not here is in general.toml.",
        "",
        "[priors]",
        *_entries(gpu, fitted),
    ]
    if tiles:
        value = ", ".join(f"{tokens} = {factor:g}" for tokens, factor in tiles.items())
        source = f"kernel tables of {GPUS[gpu]}: medians over large shapes, over a line from 16 to 48 tokens"
        lines.append(f'row_wise_tile_factor = {{ value = {{ {value} }}, source = "{source}" }}')
    if older:
        lines += ["", f'[before."{SERVED_BEFORE}"] # other kernels', *_entries(gpu, older)]
    return "\n".join(lines) + "\n"


def _entries(gpu: str, fitted: Sequence[Fitted]) -> Iterator[str]:
    # All-reduces' is no kernel's time: it is what grows with the ranks.
    starts = [item for item in fitted if item.constant.endswith("_start_s") and item.constant != "all_reduce_start_s"]
    cached = {(item.constant, item.key) for item in starts if item.value < SMALLEST_KERNEL_S}
    if ("gemm_start_s", "") in cached:
        cached.add(("quantized_gemm_start_factor", ""))
    fitted = [item for item in fitted if item.rows >= FEWEST_ROWS and (item.constant, item.key) not in cached]
    for name in dict.fromkeys(item.constant for item in fitted):
        found = {item.key: item for item in fitted if item.constant == name}
        values = {key: f"{item.value:.3g}" for key, item in found.items()}
        notes = [
            f"{key + ': ' if key else ''}{item.rows} rows, median error {item.median_error_percent:.0f} %"
            for key, item in found.items()
        ]
        for key, other in ALIKE.get(name, {}).items():
            if key not in values and other in values:
                values[key] = values[other]
                notes.append(f"{key} as {other}")
        text = ", ".join(f"{key} = {value}" for key, value in values.items())
        value = values.get("", f"{{ {text} }}")
        yield f'{name} = {{ value = {value}, source = "kernel tables of {GPUS[gpu]}: {"; ".join(notes)}" }}'
