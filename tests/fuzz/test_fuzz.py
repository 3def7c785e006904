"""Whatever is damaged, one clear answer or one clear error comes out, in time and within memory."""

import faulthandler
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.outcome import Fuzzer, Outcome, bounded_memory

CASES, PARTS, SEED = 1000, 8, 20261122


@pytest.fixture(scope="module")
def fuzzer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzer]:
    faulthandler.dump_traceback_later(300, exit=True)  # a loop in compiled code hears no signal
    yield Fuzzer(SEED, tmp_path_factory.mktemp("fuzz"))
    faulthandler.cancel_dump_traceback_later()


def described(found: Outcome) -> str:
    return f"{found.case}: {found.fault}\n  headcount {' '.join(found.arguments)[:300]}\n  {found.err.strip()[-500:]}"


@pytest.mark.slow
def test_every_door_takes_what_is_right(fuzzer: Fuzzer) -> None:
    wrong = [described(found) for found in fuzzer.unharmed() if found.fault or found.code != 0]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_damaged_input_is_answered_or_refused_in_one_line(fuzzer: Fuzzer, part: int) -> None:
    with bounded_memory():
        found = [fuzzer.case(number) for number in range(part, CASES, PARTS)]
    assert not [described(outcome) for outcome in found if outcome.fault], "\n".join(
        described(outcome) for outcome in found if outcome.fault
    )
    assert len({outcome.code for outcome in found}) > 1, "neither all refused nor all taken"


@pytest.mark.slow
def test_every_slow_door_takes_what_is_right(tmp_path: Path) -> None:
    fuzzer = Fuzzer(SEED, tmp_path, slow=True)
    found = [outcome for outcome in fuzzer.unharmed() if "record" in outcome.case or "checked" in outcome.case]
    assert len(found) == 3
    assert not [described(outcome) for outcome in found if outcome.fault or outcome.code != 0]


def test_the_law_sees_a_fault(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("files.reading._read_bounded", broken)
    assert any(found.fault for found in fuzzer.unharmed())


@pytest.mark.slow
def test_a_case_is_the_same_each_time(tmp_path: Path, fuzzer: Fuzzer) -> None:
    again = Fuzzer(SEED, tmp_path)
    first, second = ([each.case(number) for number in range(20)] for each in (fuzzer, again))
    assert [found.content for found in first] == [found.content for found in second]
    assert [found.code for found in first] == [found.code for found in second]
