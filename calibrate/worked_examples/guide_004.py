"""Guide 004: training on little memory."""

from calibrate.worked_examples.causes import MISNAMED, NO_FIT, UNIT, WORDS
from calibrate.worked_examples.example import Example, fig, row
from calibrate.worked_examples.shapes import GB, adapters_gb, per, states, weights_gb
from kvcache.models.catalog import find_gpu
from kvcache.parallelism import Parallelism
from kvcache.training.plan import TrainingPlan


def _total(billions: float) -> float:
    return states(billions * GB).total_bytes / GB


def _formats() -> tuple[Example, ...]:
    layouts = ("fp32", "fp16", "bf16", "E4M3", "E5M2")
    ranges = ("fp32, range", "fp16, range", "bf16, range", "E4M3, largest", "E5M2, largest")
    why = "a number format: we count its bytes, E012–E016"
    return (
        *(row(f"E{235 + i}", "formats", f"{name}, bits", verdict="right", why=why) for i, name in enumerate(layouts)),
        *(row(f"E{240 + i}", "formats", name, verdict="right", why=why) for i, name in enumerate(ranges)),
    )


ROWS = (
    row("E230", "weights", "7B",
        fig("GB in fp32", lambda: weights_gb(7, "fp32")), fig("GB in fp16", lambda: weights_gb(7, "fp16"), 1, 1)),
    row("E231", "training states", "gradients", fig("bytes per parameter", lambda: per("gradients"))),
    row("E232", "training states", "Adam in fp32",
        fig("bytes per parameter", lambda: per("optimizer", "fp32"), 1),
        fig("bytes if mixed", lambda: per("optimizer"), 2, None),
        cause=MISNAMED, why="mixed precision's, with master weights"),
    row("E233", "training states", "7B, Adam", fig("GB", lambda: states(7 * GB).optimizer_bytes / GB)),
    row("E234", "training states", "mixed precision", fig("bytes per parameter", lambda: per("total"))),
    *_formats(),
    row("E245", "formats", "E4M3, precision", verdict="wrong", cause=WORDS, why="a wording: E5M2 has a bit less"),
    row("E246", "formats", "fp16, smallest", verdict="right", why="a number format: its range"),
    row("E247", "formats", "a loss scale", verdict="right", why="a number format: a power of two"),
    row("E248", "activations", "recomputing every √n layers", verdict="right", why="time, not memory"),
    row("E249", "clusters", "layers of a stage",
        fig("layers", lambda: len(Parallelism(pipeline_parallel_size=4).stage_layers(24, 0)))),
    row("E250", "clusters", "global batch",
        fig("sequences", lambda: TrainingPlan(micro_batch_size=8, gradient_accumulation=4).global_batch_size)),
    row("E251", "profiles", "allocated", verdict="right", why="a profiler's report"),
    row("E252", "profiles", "active", verdict="wrong", cause=WORDS,
        why="a profiler's report: active memory holds the allocated too"),
    row("E253", "profiles", "requested", verdict="right", why="a profiler's report"),
    row("E254", "profiles", "a unit in code", verdict="wrong", cause=UNIT, why="a wording: 1,024³ bytes are a GiB"),
    row("E255", "formats", "FP8 against BF16 on H100",
        fig("times the multiplies", lambda: find_gpu("h100-sxm").flops_per_s["fp8"]
            / find_gpu("h100-sxm").flops_per_s["bf16"])),
    row("E256", "training states", "7B, fp32", fig("GB", None), verdict="right",
        why="a given figure: 2 GB of activations"),
    row("E257", "training states", "7B, mixed", fig("GB", lambda: _total(7)),
        why="as much as fp32's states: mixed precision saves activations"),
    row("E258", "adapters", "LoRA of rank 16 on a 7B's attention", fig("M parameters", lambda: adapters_gb("count")),
        why="rounded up"),
    row("E259", "adapters", "its weights, or gradients", fig("GB", lambda: adapters_gb("gradients"), 1),
        otherwise="right", why="of E258's 20 M"),
    row("E260", "adapters", "its Adam", fig("GB", lambda: adapters_gb("optimizer"), 1), otherwise="right",
        why="of E258's 20 M"),
    row("E261", "adapters", "with the 7B", fig("GB", None), verdict="right",
        why="a given figure: E258's 20 M, no activations"),
    row("E262", "adapters", "left of 24 GB", fig("GB", None), verdict="right", why="as E261"),
    row("E263", "clusters", "global batch",
        fig("sequences", lambda: TrainingPlan(micro_batch_size=4, gradient_accumulation=8).global_batch_size)),
    row("E264", "training states", "7B, full, on one GPU of 80 GB", fig("GB", lambda: _total(7)),
        cause=NO_FIT, why="states alone exceed it"),
    row("E265", "training states", "70B, full, on eight of them", fig("GB", lambda: _total(70)),
        cause=NO_FIT, why="states alone exceed them; LoRA would fit"),
    row("E266", "adapters", "LoRA on a 13B, on one GPU of 40 GB", fig("GB", lambda: 13 * per("weights"), 0, None),
        verdict="right"),
)  # fmt: skip
