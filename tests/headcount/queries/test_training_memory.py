"""What `headcount training-memory` answers."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]
ON = ("training-memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm")
FITS = (*ON, "-dp", "8", "--zero", "3", "--recompute", "full")
PARTS = (
    "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "recomputed_bytes", "gathered_bytes",
    "allowance_bytes",
)  # fmt: skip


def answer(ran: Any) -> dict[str, Any]:
    found = json.loads(ran.out)
    assert found["schema_version"] == 2
    return dict(found)


def test_the_table_shows_every_part_and_that_it_fits(headcount: Run) -> None:
    ran = headcount(*FITS)
    assert (ran.code, ran.err) == (0, "")
    for part in ("weights", "gradients", "optimizer states", "activations", "gathered weights", "allowance", "total"):
        assert f"\n{part} " in ran.out
    assert "trained on 8 GPUs (h100-sxm): TP 1, PP 1, DP 8, ZeRO 3" in ran.out
    assert "It fits: " in ran.out
    assert "8 × 4,096 tokens per optimizer step" in ran.out


def test_json_parts_add_up_to_the_total(headcount: Run) -> None:
    ran = headcount(*FITS, "--json")
    found = answer(ran)
    assert (ran.code, ran.err) == (0, "")
    assert sum(found[part] for part in PARTS) == found["total_bytes"]
    assert found["num_parameters"] == found["num_trainable_parameters"] == 8_030_261_248
    assert found["weights_bytes"] == found["num_parameters"] * 2 / 8
    assert (found["fits"], found["missing_bytes"], found["smallest_cluster"]) == (True, 0, None)
    assert all(note["source"] for note in found["assumptions"])


def test_what_does_not_fit_is_told_with_what_does(headcount: Run) -> None:
    ran = headcount(*ON, "-dp", "8")
    assert ran.code == 2
    assert "It does not fit: " in ran.out
    assert ran.err.count("\n") == 1
    assert "GiB short per GPU; fits with --zero 1" in ran.err
    assert "unchanged, it needs " in ran.err


def test_changes_are_told_together_where_none_is_enough_alone(headcount: Run) -> None:
    big = ("training-memory", "--model", "llama-3.1-70b", "--gpu", "h100-sxm", "-tp", "8", "-dp", "8")
    ran = headcount(*big, "--micro-batch-size", "4", "--no-flash-attention", "--json")
    found = answer(ran)
    (together,) = found["changes_that_fit"]
    assert len(together) > 1
    words = [str(word) for option, value in together.items() for word in (option, value) if word is not None]
    again = [word for word in words if word != "--flash-attention"]
    assert headcount(*big, "--micro-batch-size", "4", *again).code == 0


def test_the_smallest_cluster_is_found_and_is_what_is_shown(headcount: Run) -> None:
    found = answer(headcount(*ON, "--num-gpus", "64", "--json"))
    cluster = found["smallest_cluster"]
    assert found["fits"]
    assert cluster["num_gpus"] == found["num_gpus"] == 2
    layout = [cluster[f"{kind}_parallel_size"] for kind in ("tensor", "pipeline", "data")]
    again = headcount(*ON, "-tp", layout[0], "-pp", layout[1], "-dp", layout[2], "--zero", cluster["zero_stage"])
    assert again.code == 0


def test_a_given_split_stays_in_the_search(headcount: Run) -> None:
    found = answer(headcount(*ON, "--num-gpus", "64", "-tp", "8", "--zero", "2", "--json"))
    assert (found["tensor_parallel_size"], found["zero_stage"], found["num_gpus"]) == (8, 2, 8)


def test_a_cluster_too_small_is_told(headcount: Run) -> None:
    ran = headcount("training-memory", "--model", "llama-3.1-405b", "--gpu", "l4", "--num-gpus", "64")
    assert ran.code == 2
    assert "no cluster of up to 64 GPUs holds it" in ran.err


def test_qlora_trains_a_70b_model_on_one_gpu(headcount: Run) -> None:
    ran = headcount(
        "training-memory", "--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--lora-rank", "16", "--qlora",
        "--recompute", "full",
    )  # fmt: skip
    assert ran.code == 0
    assert "207,093,760 adapter parameters and 70,553,706,496 frozen ones" in ran.out


def test_options_may_come_from_a_file(headcount: Run, tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("zero: 3\ndata-parallel-size: 8\nseq-len: 8K\nflash-attention: false\n", encoding="utf-8")
    found = answer(headcount(*ON, "--config", path, "--recompute", "full", "--json"))
    assert (found["zero_stage"], found["data_parallel_size"], found["sequence_length"]) == (3, 8, 8192)
    assert found["flash_attention"] is False


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--zero", "4"], "no zero_stage '4'; take 0, 1, 2, 3"),
        (["--precision", "fp7"], "no precision 'fp7'; did you mean 'fp"),
        (["--optimizer", "adam"], "no optimizer 'adam'; did you mean 'adamw'"),
        (["--recompute", "some"], "no recompute 'some'; take none, selective, full"),
        (["--lora-targets", "all"], "no lora_targets 'all'; take qv, attention, all-linear"),
        (["-tp", "3"], "tensor_parallel_size 3 "),
        (["-tp", "0"], "'0' is not a whole number of at least 1"),
        (["-pp", "33"], "pipeline_parallel_size 33 exceeds the model's 32 layers"),
        (["-ep", "2", "-dp", "2"], "has no experts"),
        (["-ep", "2", "--num-gpus", "8"], "has no experts"),
        (["--qlora"], "give a lora_rank too"),
        (["--seq-len", "0"], "'0' is not a whole number above 0"),
        (["--allowance", "1"], "allowance is 1.0, must be at least 0, below 1"),
        (["--allowance", "x"], "'x' is not a number; give a share from 0 to below 1"),
        (["--virtual-pipeline-stages", "2"], "needs a pipeline"),
        (["--num-gpus", "0"], "'0' is not a whole number of at least 1"),
        (["--model", "llama-3.1-9b"], "did you mean 'llama-3.1-8b'"),
        (["--gpu", "h10"], "no GPU 'h10'; did you mean"),
        (["--seq-len", "100G"], "'100G' is too large; give at most 2,147,483,647"),
        (["--seq-len", "2000m"], "GiB short per GPU"),
        (["--micro-batch-size", "2000000000"], "GiB short per GPU"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_told_in_one_line(headcount: Run, options: list[str], part: str) -> None:
    ran = headcount(*ON, *options)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert ran.err.startswith("headcount: ")
    assert part in ran.err
    assert not [word for word in ("Traceback", "None", "argument '", "integer") if word in ran.err]
