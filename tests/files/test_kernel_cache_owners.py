"""Compiled kernels on disk: nothing that another user could have put there is loaded."""

import os

import pytest

from files.compiling.kernels import IS_COMPILED
from tests.files.kernel_machine import COMPILES, COMPILES_EACH_TIME, Machine, unkept

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
pytest.importorskip("resource", reason="access rights of POSIX")


@pytest.fixture
def planted(machine: Machine) -> Machine:
    """A cache with machine code that answers 43, under a right checksum."""
    machine.plant()
    return machine


def test_planted_code_in_a_private_folder_would_run(planted: Machine) -> None:
    """What the tests below plant does work where only the user could have put it."""
    assert planted.run() == (True, [])
    assert planted.answer == 43
    planted.file.unlink()
    planted.run()


DEPTHS = ("file", "folder", "kernels", "cache")
OPEN_TO_OTHERS = [
    (mode, depth)
    for mode in (0o777, 0o757, 0o775)
    for depth in DEPTHS
    if (mode, depth) != (0o775, "cache")  # a group may write to the cache folder: its kernels folder is looked at
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "depth"), OPEN_TO_OTHERS, ids=lambda part: oct(part) if isinstance(part, int) else part
)
def test_planted_code_where_others_may_write_is_not_loaded(mode: int, depth: str, planted: Machine) -> None:
    place = [planted.file, *planted.file.parents][DEPTHS.index(depth)]
    place.chmod(mode)
    loaded, told = planted.run()
    assert not loaded
    assert [text for text in told if "other users may write to it" in text]
    assert planted.answer == 42


def test_planted_code_of_another_user_is_not_loaded(planted: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in [*planted.base.rglob("*"), planted.base]:
        path.chmod(0o755)
    me = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    refused = planted.base / "kernels" if me == 0 else planted.base  # root's cache folder will do for everybody
    assert planted.run() == (False, [unkept(refused, "it belongs to another user"), COMPILES_EACH_TIME])
    monkeypatch.undo()
    assert planted.answer == 42


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
@pytest.mark.parametrize("depth", [0, 1, 2, 3], ids=["file", "folder", "kernels", "cache"])
def test_planted_code_below_a_folder_of_another_user_is_not_loaded(depth: int, planted: Machine) -> None:
    place = [planted.file, *planted.file.parents][depth]
    os.chown(place, 65534, 65534)
    _, told = planted.run()
    assert [text for text in told if "it belongs to another user" in text]
    assert planted.answer == 42


@pytest.mark.parametrize("depth", [1, 2], ids=["folder", "kernels"])
def test_a_planted_link_is_not_followed(depth: int, planted: Machine) -> None:
    place = planted.file.parents[depth - 1]
    place.rename(planted.base / "moved")
    place.symlink_to(planted.base / "moved")
    assert planted.run() == (False, [unkept(place, "it is a link"), COMPILES_EACH_TIME])
    assert planted.answer == 42


def test_a_sticky_folder_of_all_users_will_do(machine: Machine) -> None:
    machine.base.mkdir()
    machine.base.chmod(0o1777)
    assert machine.run() == (False, [COMPILES])
    assert machine.run() == (True, [])
