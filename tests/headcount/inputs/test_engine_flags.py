"""Flags of the engine that are no option here."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.headcount.inputs.test_bad_input import assert_told


@pytest.mark.parametrize(
    "command", ["capacity", "plan", "compare", "whatif", "optimize", "simulate", "memory", "fleet"]
)
def test_an_engine_s_flag_that_is_no_option_is_refused_as_in_a_pasted_line(
    headcount: Callable[..., Any], command: str
) -> None:
    ran = headcount(command, "--model", "llama-3.1-8b", "--enable-moe-shared-loras")
    assert_told(ran, "in another layout is not simulated; leave --enable-moe-shared-loras out")
    assert "Did you mean" not in ran.err


@pytest.mark.parametrize(
    ("flag", "part"),
    [
        ("--lora-target-modules", "is not simulated; leave --lora-target-modules out"),
        ("--no-enable-tower-connector-lora", "is not simulated; leave --no-enable-tower-connector-lora out"),
        ("--swap-space", "--swap-space of vLLM has no effect on the answer (of engine V0"),
        ("--linear-backend", "--linear-backend of vLLM is not modelled (kernels: step times"),
        ("--rope-scaling", "is modelled as --max-model-len, where overrides change the model's context length"),
        ("--log-patern", "Did you mean one of: '--log-pattern'"),  # of ours, though vLLM has flags that begin with log-
        ("--max-num-sequences", "No such option '--max-num-sequences'"),
    ],
)
def test_each_kind_of_engine_flag_is_told_as_what_it_is(headcount: Callable[..., Any], flag: str, part: str) -> None:
    assert_told(headcount("capacity", "--model", "llama-3.1-8b", flag), part)


def test_a_command_without_engine_options_knows_no_engine_flags(headcount: Callable[..., Any]) -> None:
    assert_told(headcount("gpus", "--enable-lora"), "No such option '--enable-lora'")
