"""A recording of answers tells every figure that changed, and nothing else."""

import json

from validation.frozen_answers.__main__ import commands, differences, renamed


def test_a_figure_that_differs_in_one_bit_is_told_with_its_place() -> None:
    before = {"capacity": [{"users": 412, "at_users": {"ttft_s": {"p95": 0.1 + 0.2}}}]}
    after = json.loads(json.dumps(before).replace("0.30000000000000004", "0.3"))
    assert list(differences(before, before)) == []
    assert list(differences(before, after)) == ["capacity[0].at_users.ttft_s.p95: 0.30000000000000004 -> 0.3"]


def test_a_key_that_is_gone_is_told_and_one_that_was_renamed_is_not() -> None:
    assert list(differences({"notes": 3}, {"diagnostics": 3})) == ["notes: 3 -> None", "diagnostics: None -> 3"]
    assert list(differences(renamed({"notes": 3}, {"notes": "diagnostics"}), {"diagnostics": 3})) == []


def test_what_is_said_in_other_words_is_no_difference() -> None:
    assert list(differences({"text": "so it is", "body": 1}, {"text": "it is so", "body": 2})) == []
    assert list(differences({"gpu": "l4"}, {"gpu": "l40s"})) == ["gpu: l4 -> l40s"]


def test_every_command_of_the_recording_is_one_that_there_is() -> None:
    words = {line.split()[0] for line in commands()}
    assert len(commands()) >= 80
    assert words >= {"plan", "capacity", "compare", "whatif", "optimize", "fleet", "simulate", "memory", "workload"}
