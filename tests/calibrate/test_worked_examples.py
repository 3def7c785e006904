"""Worked examples of widely read memory guides, beside ours."""

import re
from pathlib import Path

import pytest

from calibrate.worked_examples.example import (
    VERDICTS,
    Claim,
    Example,
    Judged,
    claims_of,
    fig,
    number,
    numbers,
    read_examples,
    row,
)
from calibrate.worked_examples.page import EXAMPLES, claims_of_page, examples_section, shown_factor
from calibrate.worked_examples.shapes import GIB, LLAMA, budget, weights_gb

FILE = Path(__file__).parents[3] / "shared" / "data" / "worked_examples.csv"
THEIR_VERDICTS = {"correct": "right", "approx": "near", "variant": "near", "wrong": "wrong", "value-lost": "lost"}
EXPRESSED = [example for example in EXAMPLES if example.is_expressed]
by_name = pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)


@pytest.fixture(scope="module")
def rows() -> dict[str, dict[str, str]]:
    if not FILE.is_file():
        pytest.skip("the folder of worked examples is absent")
    return read_examples(FILE)


# What needs the file


def test_every_row_of_the_file_is_expressed_or_has_a_reason(rows: dict[str, dict[str, str]]) -> None:
    assert [example.name for example in EXAMPLES] == sorted(rows)


@pytest.mark.parametrize("example", EXPRESSED, ids=lambda example: example.name)
def test_ours_is_the_recomputed_value_unless_the_page_says_why_not(
    rows: dict[str, dict[str, str]], example: Example
) -> None:
    given = numbers(rows[example.name]["recomputed"])
    equal = []
    for figure in example.figures:
        if figure.ours is None or figure.recomputed is None:
            continue
        value, half_a_digit = number(given[figure.recomputed])
        equal.append(figure.ours() == pytest.approx(value, abs=1.001 * half_a_digit))
    assert all(equal) != example.differs or not equal, (example, rows[example.name])


@by_name
def test_our_verdict_is_the_file_s_unless_the_page_says_otherwise(
    rows: dict[str, dict[str, str]], example: Example
) -> None:
    claim = claims_of(rows, [example])[example.name]
    ours = Judged(example=example, claim=claim).verdict
    theirs = THEIR_VERDICTS[rows[example.name]["verdict"]]
    assert theirs == (example.otherwise or ours)
    assert example.otherwise != ours


@by_name
def test_the_words_are_ours(rows: dict[str, dict[str, str]], example: Example) -> None:
    theirs = runs_of_words(" ".join(rows[example.name].values()))
    assert not theirs & (runs_of_words(example.about) | runs_of_words(example.why))


def runs_of_words(text: str, length: int = 4) -> set[tuple[str, ...]]:
    words = re.findall(r"[a-z]{2,}", text.lower())
    return {tuple(words[start : start + length]) for start in range(len(words) - length + 1)}


# What the code alone says


@pytest.mark.parametrize("example", EXPRESSED, ids=lambda example: example.name)
def test_ours_is_the_value_of_a_recomputed_formula(example: Example) -> None:
    for figure in example.figures:
        if figure.expected is not None and figure.ours is not None:
            assert figure.ours() == pytest.approx(figure.expected, rel=1e-12)


@by_name
def test_what_is_not_plain_has_a_reason(example: Example) -> None:
    if not example.is_expressed or example.differs or example.otherwise or example.cause:
        assert example.why
    if not example.is_expressed:
        assert example.verdict in VERDICTS
    for other in re.findall(r"E\d{3}", example.why):
        assert other in {known.name for known in EXAMPLES} - {example.name}


@pytest.mark.parametrize("name", LLAMA)
def test_a_guide_s_activations_differ_by_its_second_softmax_and_16_bit_logits(name: str) -> None:
    arch, tokens, s = LLAMA[name], 64 * 2048, 2048
    plan = {"micro_batch_size": 64, "sequence_length": s, "flash_attention": False}
    second_softmax = 2 * arch.num_attention_heads * s * arch.num_hidden_layers * tokens
    logits = 2 * arch.vocab_size * tokens
    ours = (budget(arch, **plan).activations_bytes + second_softmax - logits) / GIB
    claimed = {"7B": 1545.81, "13B": 2410.31, "33B": 4691.06, "65B": 7691.81}[name]  # rows E176, E181, E186, E191
    assert ours == pytest.approx(claimed, rel=0.003)  # the guide rounds the MLP's width to 8/3 of the hidden size


@pytest.mark.parametrize(
    ("digits", "ours", "verdict", "factor"),
    [
        ("30", 29.9, "right", "–"),
        ("1", 1.4, "right", "1/1.4"),
        ("2.51", 2.0, "wrong", "1.25 ×"),
        ("2.4", 2.0, "near", "1.2 ×"),
        ("4096", 5_242_880, "wrong", "1/1,280"),
    ],
)
def test_a_claim_is_judged_by_how_far_it_is_off(digits: str, ours: float, verdict: str, factor: str) -> None:
    example = row("E001", "weights", "a test", fig("GB", lambda: ours), cause="a test")
    claims = claims_of_page(examples_section(CLAIMS)) | {"E001": Claim(line="1", digits=(digits,))}
    judged = Judged(example=example, claim=claims["E001"])
    assert judged.verdict == verdict
    assert shown_factor(judged.factor) == factor


def test_a_page_gives_back_the_claims_that_it_was_written_from() -> None:
    assert claims_of_page(examples_section(CLAIMS)) == CLAIMS


def test_a_page_without_an_example_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="no row E001; give the file"):
        claims_of_page("# Where the bytes are\n")


def test_another_file_is_told(tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match="no columns id, line"):
        read_examples(other)
    other.write_text("id,line,claimed,recomputed,verdict\nE001,3,none,,wrong\n", encoding="utf-8")
    with pytest.raises(ValueError, match="row E001 claims 0 figures"):
        claims_of(read_examples(other), EXAMPLES)
    with pytest.raises(ValueError, match="no row E002"):
        claims_of(read_examples(other), EXAMPLES[1:])


@pytest.mark.parametrize(("quantization", "bits"), [("fp32", 32), ("none", 16), ("awq", 4.15625)])
@pytest.mark.parametrize("billions", [1.5, 7, 7.6, 8.75, 175])
def test_the_allocator_s_steps_do_not_show_in_nominal_weights(billions: float, quantization: str, bits: float) -> None:
    assert weights_gb(billions, quantization) == pytest.approx(billions * bits / 8, rel=1e-6)


CLAIMS = {
    example.name: Claim(line="1", digits=tuple(None if figure.claimed is None else "12" for figure in example.figures))
    for example in EXAMPLES
}
