"""What --speculative-config takes, and what it says of the rest."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import headcount as hc
from headcount.inputs.reading.variations import varied
from simulator.engines.values import Objects
from simulator.engines.vllm.speculation import SpeculativeConfig

CONSTANT = ["--latency-model", "constant", "--input-len", "64", "--output-len", "41", "--concurrency", "1"]
COMMAND = ["simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--json", *CONSTANT]


def tpot_s(headcount: Callable[..., Any], config: dict[str, Any]) -> float:
    ran = headcount(*COMMAND, "--speculative-config", json.dumps(config))
    assert ran.code == 0, ran.err
    return float(json.loads(ran.out)["tpot_s"]["mean"])


@pytest.mark.parametrize("method", ["eagle", "eagle3", "mtp", "draft_model", "ngram"])
def test_accepted_drafts_make_tokens_come_sooner(headcount: Callable[..., Any], method: str) -> None:
    config = {"method": method, "num_speculative_tokens": 3, "model": "llama-3.2-1b-instruct"}
    assert tpot_s(headcount, config | {"acceptance_rate": 0.0}) == pytest.approx(0.01)
    assert tpot_s(headcount, config | {"acceptance_rate": 1.0}) == pytest.approx(0.0025)


def test_its_own_words_of_vllm_are_taken(headcount: Callable[..., Any]) -> None:
    config = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5, "prompt_lookup_max": 4}
    assert tpot_s(headcount, config) < 0.01


def test_what_a_server_logs_by_position_is_taken(headcount: Callable[..., Any]) -> None:
    """60 % of steps accept the first draft, 30 % the second: half of those that accepted the first."""
    config = {"method": "ngram", "num_speculative_tokens": 2}
    logged = tpot_s(headcount, config | {"per_position_acceptance_rate": [0.6, 0.3]})
    assert logged == tpot_s(headcount, config | {"acceptance_rate": [0.6, 0.5]})


def test_a_published_acceptance_is_found_by_its_name(headcount: Callable[..., Any]) -> None:
    config = {"method": "deepseek_mtp", "num_speculative_tokens": 1}
    published = tpot_s(headcount, config | {"acceptance": "mtp-deepseek-v3"})
    assert published == tpot_s(headcount, config | {"acceptance_rate": [0.875]})


def test_python_takes_what_the_command_takes(headcount: Callable[..., Any]) -> None:
    config = {"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}
    load: dict[str, Any] = {"input_len": 64, "output_len": 41, "concurrency": 1, "latency_model": "constant"}
    answer = hc.simulate("llama-3.1-8b", "h100-sxm", speculation=config, **load)
    assert answer.to_json()["tpot_s"]["mean"] == tpot_s(headcount, config)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("eagle", "the text, column 1: is not JSON"),
        ('{"method": "ngram"}', "acceptance_rate is missing"),
        ('{"method": "ngram", "acceptance_rate": 0.5}', "'num_speculative_tokens' is missing; give it"),
        ("[1]", "it is a list of 1; it must be a table"),
        (
            '{"method": "medusa", "num_speculative_tokens": 3, "acceptance_rate": 0.5}',
            "method is 'medusa'; it must be one of draft_model, eagle, eagle3, mtp, ngram",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 2.5, "acceptance_rate": 0.5}',
            "num_speculative_tokens is 2.5; it must be a whole number",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": "high"}',
            "acceptance_rate is 'high'; it must be a number from 0 to 1",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": [0.8, 0.7]}',
            "acceptance_rate has 2 positions for 3 draft tokens; give a rate for each, or one for all",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": [0.8, "low"]}',
            "acceptance_rate[2] is 'low'; it must be a number from 0 to 1",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.8, "acceptance": "x"}',
            "acceptance_rate and acceptance say the same; give one of them",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 1, "acceptance": "mtp-deepseek"}',
            "no published acceptance 'mtp-deepseek'; did you mean 'mtp-deepseek-v3'",
        ),
        (
            '{"method": "ngram", "num_speculative_tokens": 2, "per_position_acceptance_rate": [0.5, 0.6]}',
            "per_position_acceptance_rate rises from 0.5 to 0.6",
        ),
        (
            '{"method": "draft_model", "num_speculative_tokens": 2, "acceptance_rate": 0.6}',
            "'model' is missing; add the draft model",
        ),
        (
            '{"method": "mtp", "num_speculative_tokens": 2, "acceptance_rate": 0.6, "parallel_drafting": true}',
            "parallel_drafting: mtp does not draft in parallel",
        ),
        (
            '{"method": "eagle", "num_speculative_tokens": 2, "acceptance_rate": 1, "draft_tensor_parallel_size": 2}',
            "draft_tensor_parallel_size is 2, not tensor_parallel_size, 1",
        ),
        ('{"method": "ngram", "num_speculative_tokens": 0, "acceptance_rate": 0.5}', "between 1 and 64"),
        ('{"method": "ngram", "num_speculative_tokens": 99, "acceptance_rate": 0.5}', "between 1 and 64"),
        ('{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 2}', "from 0 to 1"),
        (
            '{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5, "seed": 1}',
            "no key 'seed'; known: acceptance_rate",
        ),
    ],
)
def test_what_cannot_be_simulated_is_told(headcount: Callable[..., Any], config: str, told: str) -> None:
    ran = headcount(*COMMAND, "--speculative-config", config)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert told in ran.err


def test_a_threshold_that_cuts_a_drafting_step_is_told(headcount: Callable[..., Any]) -> None:
    config = {"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.5}
    ran = headcount(*COMMAND, "--speculative-config", json.dumps(config), "--long-prefill-token-threshold", "3")
    assert (ran.code, ran.out) == (2, "")
    assert "less than the 4 tokens of a drafting step" in ran.err


@pytest.mark.parametrize(
    ("method", "published", "drafts"),
    [
        ("eagle3", "eagle3-llama-3.1-8b-mtbench", 3), ("eagle", "eagle-llama-3.1-8b-mtbench", 7),
        ("mtp", "mtp-deepseek-v3", 1),
    ],
)  # fmt: skip
def test_a_method_with_published_acceptance_answers_with_it_and_warns(method: str, published: str, drafts: int) -> None:
    config = {"method": method, "num_speculative_tokens": drafts}
    assumed = hc.memory("llama-3.1-8b", "h100-sxm", speculation=config, max_model_len=8192)
    given = hc.memory("llama-3.1-8b", "h100-sxm", speculation=config | {"acceptance": published}, max_model_len=8192)
    (warning,) = [each for each in assumed.diagnostics if each.code == "draft-acceptance-assumed"]
    assert "give its acceptance_rate" in warning.text
    assert not [each for each in given.diagnostics if each.code == "draft-acceptance-assumed"]
    rates = [SpeculativeConfig().read(each).rates for each in (config, config | {"acceptance": published})]
    assert rates[0] == rates[1]


def test_positions_beyond_the_published_are_accepted_as_the_last_one() -> None:
    found = SpeculativeConfig().read({"method": "deepseek_mtp", "num_speculative_tokens": 3})
    assert (found.name, found.rates) == ("mtp", (0.875, 0.6, 0.6))


def test_a_module_that_drafts_several_tokens_meets_the_published_mean_length() -> None:
    """huggingface.co/nebius/MTP-DeepSeek-V3-0324, 'Original MTP' with 7 drafts: 3.20 greedy, 3.09 sampled."""
    found = SpeculativeConfig().read({"method": "mtp", "num_speculative_tokens": 7})
    assert 3.09 <= found.tokens_per_step <= 3.20


def test_none_before_drafts_is_a_list_of_both() -> None:
    one = '{"method": "ngram", "num_speculative_tokens": 2, "acceptance_rate": 0.5}'
    listed = Objects(SpeculativeConfig()).read
    assert listed(f"none,{one}") == listed(f"[null, {one}]")
    for name in ("speculative-config", "speculation"):
        (axis,) = varied([f"{name}=none,{one}"])
        assert (axis.name, axis.values) == ("speculation", listed(f"[null, {one}]"))
