"""Every flag of an installed engine is an argument here, or stands in the table of flags."""

from pathlib import Path

import pytest

from conformance.components import flags as checker
from conformance.components.flags import argument_flags, check_flags
from simulator.engines.flags import read_flag


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_no_flag_of_an_argument_stands_in_the_table_too(engine: str) -> None:
    own = argument_flags(engine)
    assert len(own) > 30
    assert not [flag for flag in sorted(own) if read_flag(engine, flag)[0] is not None]


def test_every_flag_of_vllm_is_classified_once(vllm_python: Path) -> None:
    found = check_flags(vllm_python, "vllm")
    assert len(found.flags) > 300
    assert (found.unclassified, found.twice) == ((), ())


def test_every_flag_of_sglang_is_classified_once(sglang_python: Path) -> None:
    found = check_flags(sglang_python, "sglang")
    assert len(found.flags) > 500
    assert (found.unclassified, found.twice) == ((), ())


def test_a_flag_that_the_table_lacks_would_be_seen(vllm_python: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = checker.read_flag
    without = {"port": (None, False)}
    monkeypatch.setattr(checker, "read_flag", lambda engine, flag: without.get(flag) or find(engine, flag))
    assert check_flags(vllm_python, "vllm").unclassified == ("--port",)
