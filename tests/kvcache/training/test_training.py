"""Training memory: laws, published tables, worked examples."""

import math
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.models import with_attention
from kvcache.models.catalog import load_model
from kvcache.parallelism import Parallelism
from kvcache.shape.tensors import Tensor
from kvcache.training.activations import (
    micro_batches_in_flight,
    stage_activations,
)
from kvcache.training.budget import rank_parts, training_budget
from kvcache.training.cluster import remedies, smallest_cluster
from kvcache.training.plan import TrainingPlan
from kvcache.training.states import (
    NF4_BITS,
    find_optimizer,
    find_precision,
    model_states,
    optimizer_names,
    precision_names,
)
from tests.kvcache.training.training_cases import GB, GIB, H100, LLAMA, budget, gpt, kept, layer, llama, states

# Laws

MODELS = ["llama-3.1-8b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b", "phi-2", "gpt-oss-20b"]
plans = st.fixed_dictionaries(
    {
        "tensor_parallel_size": st.sampled_from([1, 2, 4]),
        "data_parallel_size": st.sampled_from([1, 2, 8]),
        "zero_stage": st.integers(0, 3),
        "precision": st.sampled_from(precision_names()),
        "optimizer": st.sampled_from(optimizer_names()),
        "micro_batch_size": st.integers(1, 4),
        "sequence_length": st.sampled_from([512, 2048, 8192]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "sequence_parallel": st.booleans(),
        "flash_attention": st.booleans(),
        "dropout": st.booleans(),
        "fused_kernels": st.booleans(),
        "lora_rank": st.sampled_from([0, 8]),
    }
)


@given(model=st.sampled_from(MODELS), plan=plans)
@settings(max_examples=60)
def test_the_parts_add_up_to_the_total(model: str, plan: dict[str, Any]) -> None:
    b = budget(model, **plan)
    parts = [value for name, value in vars(b).items() if name.endswith("_bytes") and name != "gpu_memory_bytes"]
    assert sum(parts) == b.total_bytes
    assert min(parts) >= 0
    assert b.fits == (b.total_bytes <= b.gpu_memory_bytes)


@given(model=st.sampled_from(MODELS), plan=plans)
@settings(max_examples=60)
def test_zero_shards_nothing_on_one_data_parallel_rank(model: str, plan: dict[str, Any]) -> None:
    plan |= {"data_parallel_size": 1}
    assert len({rank_parts(load_model(model), TrainingPlan(**plan | {"zero_stage": z})) for z in range(4)}) == 1


@given(model=st.sampled_from(MODELS), plan=plans)
@settings(max_examples=60)
def test_more_sequences_or_longer_ones_never_need_less(model: str, plan: dict[str, Any]) -> None:
    b = budget(model, **plan)
    assert budget(model, **plan | {"micro_batch_size": plan["micro_batch_size"] + 1}).total_bytes > b.total_bytes
    assert budget(model, **plan | {"sequence_length": 2 * plan["sequence_length"]}).total_bytes > b.total_bytes


@given(model=st.sampled_from(MODELS), plan=plans)
@settings(max_examples=60)
def test_full_recomputation_needs_at_most_what_selective_needs_and_that_at_most_what_none_needs(
    model: str, plan: dict[str, Any]
) -> None:
    full, selective, none = (budget(model, **plan | {"recompute": name}) for name in ("full", "selective", "none"))
    ceilings = 2  # each part is rounded up by itself
    assert full.total_bytes <= selective.total_bytes + ceilings <= none.total_bytes + 2 * ceilings


@given(model=st.sampled_from(MODELS), plan=plans)
@settings(max_examples=60)
def test_each_further_zero_stage_keeps_less_of_the_states(model: str, plan: dict[str, Any]) -> None:
    def held(stage: int) -> int:
        return sum(rank_parts(load_model(model), TrainingPlan(**plan | {"zero_stage": stage}))[0][:3])

    assert held(3) <= held(2) <= held(1) <= held(0)


@pytest.mark.parametrize("ways", [2, 4, 8, 64])
def test_zero_3_divides_every_state_by_the_data_parallel_ranks(ways: int) -> None:
    whole, shard = budget(), budget(data_parallel_size=ways, zero_stage=3)
    for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes"):
        assert getattr(shard, part) == math.ceil(getattr(whole, part) / ways)


def test_tensor_parallelism_divides_all_but_the_norms() -> None:
    whole, rank = budget(), budget(tensor_parallel_size=8)
    norms = 4096 * (2 * 32 + 1) * 2
    assert rank.weights_bytes - norms == (whole.weights_bytes - norms) / 8
    assert rank.optimizer_bytes == 6 * rank.weights_bytes


def test_sequence_parallelism_divides_all_activations() -> None:
    arch = load_model("llama-3.1-8b")
    assert layer(arch, 8, sequence_parallel=True).total == pytest.approx(layer(arch).total / 8)
    assert layer(arch, 8).total > layer(arch).total / 8


def test_expert_parallelism_divides_the_experts_alone() -> None:
    one, eight = (budget("mixtral-8x7b", data_parallel_size=8, expert_parallel_size=ep) for ep in (1, 8))
    experts = 32 * 8 * 3 * 4096 * 14336 * 2
    assert one.weights_bytes - eight.weights_bytes == experts * 7 / 8


def test_pipeline_stages_hold_the_whole_model_together() -> None:
    stages = rank_parts(load_model("llama-3.1-8b"), TrainingPlan(pipeline_parallel_size=4, gradient_accumulation=8))
    assert sum(stage.weights_bytes for stage in stages) == budget().weights_bytes


def test_the_first_stage_holds_as_many_micro_batches_as_there_are_stages() -> None:
    assert [flight(stage, 4, 1, 16) for stage in range(4)] == [4, 3, 2, 1]
    assert [flight(stage, 4, 1, 2) for stage in range(4)] == [2, 2, 2, 1]
    assert flight(0, 1, 1, 16) == 1


def flight(stage: int, p: int, v: int, m: int) -> float:
    return micro_batches_in_flight(stage, pipeline_parallel_size=p, virtual_pipeline_stages=v, num_micro_batches=m)


def test_accumulating_gradients_costs_nothing_without_a_pipeline() -> None:
    once, often = budget(), budget(gradient_accumulation=64)
    assert once.total_bytes == often.total_bytes
    assert often.plan.global_batch_size == 64


def test_adafactor_keeps_one_number_per_row_and_column() -> None:
    tensors = [Tensor("mlp", 300, 200, count=3), Tensor("norms", 700)]
    found = model_states(tensors, find_precision("fp32"), find_optimizer("adafactor"))
    assert found.optimizer_bytes == 4 * (3 * 500 + 700)


def test_zero_3_gathers_two_layers_and_one_gradient() -> None:
    arch = llama(2, 4096, 32, 11008)
    one = 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096
    assert budget(arch, data_parallel_size=2, zero_stage=3).gathered_bytes == 2 * one * 2 + one * 2


# Published figures


# Korthikanti et al. 2022 (arXiv:2205.05198), table 3: layers, hidden size, heads.
PAPER = {"22B": (48, 6144, 64), "175B": (96, 12288, 96), "530B": (105, 20480, 128), "1T": (128, 25600, 160)}


@pytest.mark.parametrize("shape", PAPER.values(), ids=PAPER)
def test_activations_per_layer_are_those_of_korthikanti_s_table_2(shape: tuple[int, int, int]) -> None:
    arch, (_, h, a), s, t = gpt(*shape), shape, 2048, 8
    attention = 5 * a * s / h
    no, tensor, sequence = layer(arch), layer(arch, t), layer(arch, t, sequence_parallel=True)
    assert no.total / h == pytest.approx(34 + attention)
    assert tensor.total / h == pytest.approx(10 + 24 / t + attention / t)
    assert sequence.total / h == pytest.approx((34 + attention) / t)
    assert (tensor.total - tensor.attention_core) / h == pytest.approx(10 + 24 / t)
    assert (sequence.total - sequence.attention_core) / h == pytest.approx(34 / t)
    assert tensor.layer_input / h == pytest.approx(2)


@pytest.mark.parametrize(("model", "saved"), [("175B", 0.70), ("530B", 0.65)])
def test_selective_recomputation_saves_what_section_5_says(model: str, saved: float) -> None:
    found = layer(gpt(*PAPER[model]))
    assert found.attention_core / found.total == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize("shape", PAPER.values(), ids=PAPER)
def test_both_techniques_together_leave_a_fifth(shape: tuple[int, int, int]) -> None:
    """The abstract: activation memory falls five-fold; full recomputation would leave a tenth (figure 7)."""
    arch = gpt(*shape)
    both, alone = layer(arch, 8, sequence_parallel=True), layer(arch, 8)
    assert (both.total - both.attention_core) / alone.total == pytest.approx(0.18, abs=0.025)
    assert alone.layer_input / alone.total == pytest.approx(0.09, abs=0.015)


def test_embedding_and_output_layer_are_those_of_section_4_3() -> None:
    arch, h, v, s, t, b = gpt(*PAPER["22B"]), 6144, 51200, 2048, 8, 4
    whole = kept(sequence_parallel=True, micro_batch_size=b)
    found = stage_activations(arch, Parallelism(tensor_parallel_size=t), 0, whole)
    layers = 48 * layer(arch, t, sequence_parallel=True).total * s * b
    assert found.kept_bytes - layers == pytest.approx(s * b * h / t)
    assert found.output_bytes == pytest.approx(4 * s * b * h / t * (1 + v / h))


@pytest.mark.parametrize(("p", "v"), [(8, 3), (35, 3), (4, 2)])
def test_the_interleaved_schedule_holds_more_as_in_section_4_2(p: int, v: int) -> None:
    assert flight(0, p, v, 8 * p) == pytest.approx(p * (1 + (p - 1) / (p * v)))


# ZeRO (arXiv:1910.02054), table 1: GB per device with optimizer states, gradients, weights sharded, one after another.
ZERO_TABLE = {
    (7.5, 1): (120, 120, 120), (7.5, 4): (52.5, 41.3, 30), (7.5, 16): (35.6, 21.6, 7.5), (7.5, 64): (31.4, 16.6, 1.88),
    (7.5, 256): (30.4, 15.4, 0.47), (7.5, 1024): (30.1, 15.1, 0.12),
    (128, 1): (2048, 2048, 2048), (128, 4): (896, 704, 512), (128, 16): (608, 368, 128), (128, 64): (536, 284, 32),
    (128, 256): (518, 263, 8), (128, 1024): (513, 257, 2),
    (1000, 1): (16000, 16000, 16000), (1000, 4): (7000, 5500, 4000), (1000, 16): (4750, 2875, 1000),
    (1000, 64): (4187, 2218, 250), (1000, 256): (4046, 2054, 62.5), (1000, 1024): (4011, 2013, 15.6),
}  # fmt: skip


@pytest.mark.parametrize(("billions", "ranks"), ZERO_TABLE)
def test_model_states_are_those_of_zero_s_table_1(billions: float, ranks: int) -> None:
    found = [states(billions * GB, zero_stage=z, data_parallel_size=ranks).total_bytes / GB for z in (1, 2, 3)]
    assert found == pytest.approx(ZERO_TABLE[billions, ranks], rel=0.004, abs=0.05)


@pytest.mark.parametrize("d", [1, 4, 64])
def test_megatron_s_distributed_optimizer_costs_what_its_guide_says(d: int) -> None:
    """Megatron Core user guide, distributed optimizer. Its 20 bytes of fp16 hold an fp32 copy of gradients too."""
    bf16 = TrainingPlan(fp32_gradients=True).bytes_of
    sharded = {"zero_stage": 1, "data_parallel_size": d}
    tensor, adam = Tensor("mlp", 64 * 10**6), find_optimizer("adamw")
    for precision, expected in ((bf16, 6 + 12 / d), (find_precision("fp32"), 8 + 8 / d)):
        assert model_states([tensor], precision, adam, **sharded).total_bytes / tensor.elements == expected


def test_bytes_per_parameter_are_those_of_the_guides() -> None:
    """transformers, model memory anatomy: 18, with 8-bit Adam 12; FP8-LM: 1 + 6; DeepSeek-V3: 1 + 4 + 4 + 4."""
    expected = {
        ("bf16-autocast", "adamw"): 18, ("bf16-mixed", "adamw"): 16, ("bf16-pure", "adamw"): 8, ("fp32", "adamw"): 16,
        ("fp8-lm", "adamw"): 7, ("fp8-deepseek", "adamw"): 13, ("fp8-mixed", "adamw"): 18, ("fp32", "lion"): 12,
        ("fp32", "sgd-momentum"): 12, ("bf16-pure", "sgd"): 4,
    }  # fmt: skip
    found = {key: states(GB, *key).total_bytes / GB for key in expected}
    assert found == expected
    assert states(GB, "bf16-autocast", "adamw-8bit").total_bytes / GB == pytest.approx(12, rel=0.003)


# LoRA (arXiv:2106.09685), tables 2, 4: trained parameters with adapters on queries and values.
@pytest.mark.parametrize(
    ("shape", "rank", "published"),
    [((96, 12288, 96), 1, 4.7e6), ((96, 12288, 96), 8, 37.7e6), ((12, 768, 12), 8, 0.3e6), ((24, 1024, 16), 8, 0.8e6)],
)
def test_adapters_have_as_many_parameters_as_published(
    shape: tuple[int, int, int], rank: int, published: float
) -> None:
    found = budget(gpt(*shape), lora_rank=rank, lora_targets="qv").num_trainable_parameters
    assert found == pytest.approx(published, rel=0.02)


def test_qlora_packs_weights_as_its_paper_says() -> None:
    """Section 3: 0.127 bits of constants per weight instead of 0.5, 3 GB of a 65B model; 65B trains on 48 GB."""
    constants = NF4_BITS - 4
    assert constants == pytest.approx(0.127, abs=5e-4)
    assert (0.5 - constants) / 8 * 65 == pytest.approx(3, abs=0.05)
    plan = {"lora_rank": 64, "recompute": "full", "sequence_length": 512, "allowance": 0.0}
    assert budget(LLAMA["65B"], **plan, qlora=True).total_bytes < 48 * GIB
    assert budget(LLAMA["65B"], recompute="full").total_bytes > 780 * GB


# What PyTorch keeps, counted with torch.autograd.graph.saved_tensors_hooks on a CPU in bf16, parameters left out:
# torch 2.13, transformers 5.19, 2 × 256 tokens. Bytes per token of one layer.
def test_the_paper_s_layer_keeps_in_pytorch_what_the_formula_says() -> None:
    counted = 54.016 * 512  # with the layer norms' statistics, 16 bytes per token
    assert layer(gpt(1, 512, 8), sequence_length=256).total == pytest.approx(counted - 8, rel=1e-4)


@pytest.mark.parametrize(("flash_attention", "counted"), [(True, 22056), (False, 35848)])
def test_transformers_llama_keeps_what_the_unfused_formula_says(flash_attention: bool, counted: int) -> None:
    arch = with_attention(llama(1, 512, 8, 1408), num_kv_heads=2)
    found = layer(arch, sequence_length=256, dropout=False, fused_kernels=False, flash_attention=flash_attention)
    assert found.total + 8 == counted  # two norms' statistics


# Clusters


def test_the_smallest_cluster_holds_it_and_one_size_less_does_not() -> None:
    arch, plan = load_model("llama-3.1-70b"), TrainingPlan(recompute="full")
    found = smallest_cluster(arch, H100, plan)
    assert found is not None
    assert found.fits
    assert smallest_cluster(arch, H100, plan, max_gpus=found.plan.num_gpus - 1) is None


def test_what_is_fixed_stays() -> None:
    arch, plan = load_model("llama-3.1-8b"), TrainingPlan(tensor_parallel_size=4)
    found = smallest_cluster(arch, H100, plan, fixed=frozenset({"tensor_parallel_size", "pipeline_parallel_size"}))
    assert found is not None
    assert (found.plan.tensor_parallel_size, found.plan.pipeline_parallel_size, found.plan.num_gpus) == (4, 1, 4)


def test_every_remedy_fits_on_the_same_gpus() -> None:
    arch, plan = load_model("llama-3.1-8b"), TrainingPlan(data_parallel_size=8, micro_batch_size=4)
    found = remedies(arch, H100, plan)
    assert found
    assert all(training_budget(arch, H100, other).fits and other.num_gpus == 8 for other in found)


@pytest.mark.parametrize(
    ("plan", "part"),
    [
        ({"precision": "fp7"}, "no precision 'fp7'; did you mean 'fp"),
        ({"optimizer": "adam"}, "no optimizer 'adam'; did you mean 'adamw'"),
        ({"zero_stage": 4}, "no zero_stage '4'; take 0, 1, 2, 3"),
        ({"sequence_length": 2**31}, "must be at least 1, below 2^31"),
        ({"micro_batch_size": 0}, "micro_batch_size is 0, must be at least 1"),
        ({"allowance": 1.0}, "allowance is 1.0, must be at least 0, below 1"),
        ({"qlora": True}, "give a lora_rank"),
        ({"lora_rank": -1}, "lora_rank is -1"),
        ({"expert_parallel_size": 2}, "does not divide data_parallel_size 1"),
        ({"expert_parallel_size": 2, "data_parallel_size": 2}, "has no experts"),
        ({"virtual_pipeline_stages": 2}, "needs a pipeline"),
        ({"virtual_pipeline_stages": 2, "pipeline_parallel_size": 2}, "a multiple of pipeline_parallel_size 2"),
        ({"virtual_pipeline_stages": 3, "pipeline_parallel_size": 2, "gradient_accumulation": 2}, "do not divide into"),
        ({"tensor_parallel_size": 3}, "tensor_parallel_size 3"),
        ({"pipeline_parallel_size": 33}, "exceeds the model's 32 layers"),
    ],
)
def test_a_wrong_plan_is_refused(plan: dict[str, Any], part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)):
        budget(**plan)
