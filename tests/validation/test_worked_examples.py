"""Worked examples of memory guides, beside what Headcount computes."""

from pathlib import Path

import pytest

from tests.validation.data import DATA, needs_data
from validation.markdown import filled
from validation.worked_examples.__main__ import Judged, counts, differing_table, judge, read_rows, wrong_table
from validation.worked_examples.claims import Claim, claims
from validation.worked_examples.quantities import GIB, LLAMA, budget, weights_gb

PAGE = Path(__file__).parents[2] / "docs" / "measurements" / "worked-examples.md"


@needs_data
def test_ours_is_the_figure_recomputed_by_hand_unless_a_reason_is_given() -> None:
    rows = read_rows(DATA)
    for claim in claims():
        found = judge(claim, rows[claim.row])
        assert found.agrees or claim.recomputed is None, found
        assert found.verdict != "near" or claim.remark, found
        assert found.verdict != "right" or rows[claim.row]["verdict"] != "wrong" or claim.row == "E229", found


@needs_data
def test_the_page_is_written_by_the_benchmark() -> None:
    rows = read_rows(DATA)
    judged = [judge(claim, rows[claim.row]) for claim in claims()]
    page = PAGE.read_text(encoding="utf-8")
    tables = {
        "counts": lambda: counts(judged, len(rows)),
        "wrong": lambda: wrong_table(judged),
        "differing": lambda: differing_table(judged),
    }
    assert page == filled(page, tables), "run 'python -m validation.worked_examples' with --page"


@pytest.mark.parametrize(
    ("printed", "ours", "verdict"), [("30 GB", 29.9, "right"), ("1 TB", 1.4, "right"), ("2.4", 2.0, "near")]
)
def test_a_claim_is_judged_by_the_digits_that_it_prints(printed: str, ours: float, verdict: str) -> None:
    row = {"document": "a guide", "line": "1", "claimed": printed, "recomputed": ""}
    found: Judged = judge(Claim("E001", "a test", "GB", lambda: ours, recomputed=None), row)
    assert found.verdict == verdict


@pytest.mark.parametrize("name", LLAMA)
def test_a_guide_s_activations_differ_by_its_second_softmax_and_16_bit_logits(name: str) -> None:
    arch, tokens, s = LLAMA[name], 64 * 2048, 2048
    second_softmax = 2 * arch.num_attention_heads * s * arch.num_hidden_layers * tokens
    logits = 2 * arch.vocab_size * tokens
    found = budget(arch, micro_batch_size=64, sequence_length=s, flash_attention=False)
    ours = (found.activations_bytes + second_softmax - logits) / GIB
    claimed = {"7B": 1545.81, "13B": 2410.31, "33B": 4691.06, "65B": 7691.81}[name]  # rows E176, E181, E186, E191
    assert ours == pytest.approx(claimed, rel=0.003)  # the guide rounds the MLP's width to 8/3 of the hidden size


@pytest.mark.parametrize(("quantization", "bits"), [("fp32", 32), ("none", 16), ("awq", 4.15625)])
@pytest.mark.parametrize("billions", [1.5, 7, 7.6, 8.75, 175])
def test_the_allocator_s_steps_do_not_show_in_nominal_weights(billions: float, quantization: str, bits: float) -> None:
    assert weights_gb(billions, quantization) == pytest.approx(billions * bits / 8, rel=1e-6)
