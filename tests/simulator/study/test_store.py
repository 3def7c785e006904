"""The store of finished simulations: what is found there is what was computed, whatever happens to its file."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.cache import row_store
from files.limits import limits_raised
from files.warn_once import warn_once
from simulator.study.executors.threads import Executor as Threads
from simulator.study.replication import Replication, Timeline
from simulator.study.running.simulations import Simulations
from simulator.study.running.task import Outcome, Task
from simulator.study.store.encoding import decode, encode
from simulator.study.store.store import Store, kept_simulations
from tests.simulator.study.study_tasks import all_shown, shown, small_task, small_tasks

resource = pytest.importorskip("resource", reason="limits of POSIX")
KEY = b"k" * 32
ROOT = Path(__file__).parents[3]


@dataclass
class Counting:
    """Threads that count what they simulate."""

    simulated: list[int] = field(default_factory=list)
    inner: Any = field(default_factory=lambda: Threads(2))

    @property
    def origin(self) -> Any:
        return self.inner.origin

    def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
        for place, outcome in self.inner.run(tasks):
            self.simulated.append(tasks[place].replication)
            yield place, outcome

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def told_anew() -> Iterator[None]:
    warn_once.cache_clear()
    yield
    warn_once.cache_clear()


def ask(tasks: list[Task], base: Path) -> tuple[list[Any], list[int]]:
    """What a new process would find, and which replications it had to simulate."""
    counting = Counting()
    with Simulations(executor=counting, store=kept_simulations(base)) as simulations:
        return all_shown(simulations.run(tasks)), sorted(counting.simulated)


def test_what_is_stored_is_what_was_computed_byte_for_byte(tmp_path: Path) -> None:
    tasks = small_tasks()
    computed = all_shown(Simulations().run(tasks))
    assert ask(tasks, tmp_path) == (computed, [0, 1, 2, 3])
    assert ask(tasks, tmp_path) == (computed, [])


def test_a_widened_question_computes_only_what_is_new(tmp_path: Path) -> None:
    ask(small_tasks(3), tmp_path)
    assert ask(small_tasks(5), tmp_path)[1] == [3, 4]
    assert ask([replace(small_task(), size=3.0), small_task()], tmp_path)[1] == [0]


def test_what_cannot_be_told_apart_is_simulated_each_time(tmp_path: Path) -> None:
    task = small_task(fleet=replace(small_task().fleet, router="tests.simulator.study.test_digest:Mine"))
    assert ask([task], tmp_path)[1] == [0]
    assert ask([task], tmp_path)[1] == [0]


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(values)
def test_every_value_comes_back_as_it_was(value: Any) -> None:
    assert repr(decode(encode(value))) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3), np.arange(6.0)[::2], np.array([], "i4"), np.array(3.5), np.array([True]),
        np.array([np.nan, -0.0, np.inf]), np.zeros(2, [("a", "f8"), ("b", "i4", (3,))]),
    ],
)  # fmt: skip
def test_every_array_comes_back_as_it_was_and_may_be_written_to(array: Any) -> None:
    found = decode(encode(array))
    assert shown(found) == shown(np.ascontiguousarray(array).reshape(array.shape))
    assert found.flags.writeable
    assert shown(decode(encode(np.float64(1.5)))) == (np.float64, "np.float64(1.5)")


@pytest.mark.parametrize("value", [{1: 2}, {"a": {1}}, Path("a"), np.array([object()]), Counting(), Store])
def test_what_would_not_come_back_is_not_kept(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be kept"):
        encode(value)


@pytest.mark.parametrize("content", [b"", b"\xc1", encode(3)[:0] + b"\x93", *(
    __import__("msgspec").msgpack.encode(value) for value in (
        ["object", "os", "system", {}], ["object", "simulator.results", "Any", {}], ["array", "'O'", [1], b"12345678"],
        ["array", "'<f8'", [2], b"12345678"], ["list2"], ["object", "simulator.study.slo", "SLO", {"no": 1}],
        ["array", "__import__('os')", [1], b""],
    )
)])  # fmt: skip
def test_bytes_from_elsewhere_are_refused_and_run_nothing(content: bytes) -> None:
    with pytest.raises(ValueError, match="no encoded value"):
        decode(content)


@pytest.fixture
def kept(tmp_path: Path) -> Store:
    """A store with four simulations, as another process left it."""
    ask(small_tasks(), tmp_path)
    return kept_simulations(tmp_path)


def flip(at: float) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[int(at * (len(content) - 1))] ^= 16
        path.write_bytes(content)

    return damage


DAMAGES: dict[str, Callable[[Path], Any]] = {
    **{f"a bit at {at}": flip(at) for at in (0.0, 0.0001, 0.2, 0.4, 0.6, 0.8, 1.0)},
    "cut in half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "cut at the end": lambda path: os.truncate(path, path.stat().st_size - 100),
    "emptied": lambda path: os.truncate(path, 0),
    "text": lambda path: path.write_text("no database " * 4000),
    "zeros inside": lambda path: path.write_bytes(path.read_bytes()[:16384] + bytes(path.stat().st_size - 16384)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_never_gives_a_wrong_answer_and_is_replaced(
    name: str, kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = small_tasks()
    computed = all_shown(Simulations().run(tasks))
    DAMAGES[name](kept.path)
    assert ask(tasks, tmp_path)[0] == computed
    assert len(caplog.records) <= 1
    assert ask(tasks, tmp_path)[0] == computed
    assert ask(tasks, tmp_path) == (computed, [])


def test_a_damaged_file_is_told_in_one_line_and_moved_aside(
    kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept.path.write_text("no database " * 4000)
    ask(small_tasks(), tmp_path)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == (
        f"headcount: finished simulations are not kept in {kept.path} in this run: the file is damaged and now named "
        "store.damaged; the next run begins a new one"
    )
    assert kept.path.with_name("store.damaged").read_text().startswith("no database")


def test_a_row_under_another_key_is_not_believed(kept: Store) -> None:
    with sqlite3.connect(kept.path) as database:
        (_, key), (_, other) = database.execute("select number, key from simulations limit 2").fetchall()
        database.execute("update simulations set key = ? where key = ?", (KEY, other))
    assert kept.get(KEY) is None
    assert kept.get(key) is not None


def unkept(kept: Store, why: str) -> str:
    return f"headcount: finished simulations are not kept in {kept.path}: {why}; the run goes on without"


def answers_without(kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, why: str) -> None:
    tasks = small_tasks(2)
    warn_once.cache_clear()
    caplog.clear()
    assert ask(tasks, tmp_path) == (all_shown(Simulations().run(tasks)), [0, 1])
    assert [record.getMessage() for record in caplog.records] == [unkept(kept, why)]


def test_a_store_that_is_locked_for_long_is_left_alone(
    kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_store, "BUSY_S", 0.05)
    other = sqlite3.connect(kept.path, isolation_level=None)
    other.execute("pragma locking_mode = exclusive")
    other.execute("begin exclusive")
    other.execute("delete from simulations")
    answers_without(kept, tmp_path, caplog, "another program keeps it locked")
    other.execute("rollback")
    other.close()
    assert ask(small_tasks(), tmp_path)[1] == []


def test_a_store_of_a_newer_release_is_left_alone(
    kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    database = sqlite3.connect(kept.path)
    database.execute("pragma user_version = 2")
    database.close()
    before = kept.path.read_bytes()
    answers_without(kept, tmp_path, caplog, "a newer release of Headcount wrote it")
    assert kept.path.read_bytes() == before


def test_a_folder_that_others_may_write_to_is_not_trusted(
    kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kept.path.parent.chmod(0o777)
    answers_without(kept, tmp_path, caplog, "other users may write to it")
    kept.path.parent.chmod(0o700)
    kept.path.rename(tmp_path / "elsewhere")
    kept.path.symlink_to(tmp_path / "elsewhere")
    answers_without(kept, tmp_path, caplog, "Too many levels of symbolic links")


def test_a_folder_that_cannot_be_written_to_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    base = tmp_path / "sealed"
    base.write_text("a file")
    answers_without(kept_simulations(base), base, caplog, "File exists")


def test_a_write_protected_store_is_told(kept: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write there")
    kept.path.chmod(0o400)
    answers_without(kept, tmp_path, caplog, "Permission denied")


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, 20_000, 100_000, 150_000])
def test_a_full_disk_is_told_and_nothing_is_lost(room: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A file that may grow no further is what a full disk shows."""
    tasks = small_tasks()
    computed = all_shown(Simulations().run(tasks))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        found, _ = ask(tasks, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert found == computed
    (told,) = [record.getMessage() for record in caplog.records]
    assert "finished simulations are not kept in" in told
    assert ask(tasks, tmp_path)[0] == computed
    assert ask(tasks, tmp_path)[1] == []


def some_replication(bytes_each: int) -> Replication:
    (found,) = Simulations().run([small_task()])
    columns = dict.fromkeys((each.name for each in fields(Timeline)), np.zeros(0))
    return replace(found, timeline=Timeline(**{**columns, "time_s": np.zeros(bytes_each // 8)}))


def test_the_oldest_make_room_and_the_file_stays_bounded(tmp_path: Path) -> None:
    large, store = some_replication(100_000), kept_simulations(tmp_path)
    with limits_raised(store_bytes=2_000_000):
        for number in range(60):
            store.put(number.to_bytes(32, "big"), large)
    there = [number for number in range(60) if store.get(number.to_bytes(32, "big")) is not None]
    assert there == list(range(there[0], 60))
    assert 5 <= len(there) <= 12
    store.close()
    assert store.path.stat().st_size < 2_400_000


def test_a_store_too_small_for_one_simulation_keeps_the_last(tmp_path: Path) -> None:
    store = kept_simulations(tmp_path)
    with limits_raised(store_bytes=1):
        store.put(KEY, some_replication(8))
        store.put(KEY[::-1], some_replication(8))
    assert store.count() == 1


def test_clearing_gives_the_space_back(kept: Store) -> None:
    before = kept.path.stat().st_size
    kept.clear()
    assert kept.count() == 0
    kept.close()
    assert kept.path.stat().st_size < before / 4


def test_after_ctrl_c_no_more_simulations_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counting = Counting(inner=Threads(1))

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(row_store.RowStore, "put", interrupted)
    begun: list[int] = []
    monkeypatch.setattr(Task, "run", lambda task, run=Task.run: (begun.append(task.replication), run(task))[1])
    with pytest.raises(KeyboardInterrupt):
        Simulations(executor=counting, store=kept_simulations(tmp_path)).run(small_tasks(30))
    time.sleep(0.3)
    assert len(begun) < 20


def test_what_is_finished_is_kept_at_ctrl_c(tmp_path: Path) -> None:
    class Interrupted(Counting):
        def run(self, tasks: Sequence[Task]) -> Iterator[tuple[int, Outcome]]:
            for number, found in enumerate(super().run(tasks)):
                if number == 2:
                    raise KeyboardInterrupt
                yield found

    with (
        pytest.raises(KeyboardInterrupt),
        Simulations(executor=Interrupted(), store=kept_simulations(tmp_path)) as simulations,
    ):
        simulations.run(small_tasks(6))
    assert len(ask(small_tasks(6), tmp_path)[1]) == 4


# One process of several: it simulates so many tasks, says which it simulated, and may be killed at any time.
WORKER = """
import sys
from pathlib import Path
from simulator.study.running.simulations import Simulations
from simulator.study.store.store import Store, kept_simulations
from tests.simulator.study.study_tasks import small_tasks
from tests.simulator.study.test_store import Counting

class Loud(list):
    def append(self, number):
        print(number, flush=True)

with Simulations(executor=Counting(Loud()), store=kept_simulations(Path(sys.argv[1]))) as simulations:
    simulations.run(small_tasks(int(sys.argv[2])))
"""


def begun(base: Path, count: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(base), str(count)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, cwd=ROOT,
    )  # fmt: skip


@pytest.mark.slow
def test_a_killed_process_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    """Ten times: what was reported as finished before the last report is not simulated again."""
    count, kept = 400, set[int]()
    for round_ in range(10):
        process = begun(tmp_path, count)
        assert process.stdout is not None
        simulated = [int(process.stdout.readline()) for _ in range(5 + 7 * round_ % 11)]
        time.sleep(0.003 * round_)
        process.send_signal(signal.SIGKILL)
        simulated += [int(line) for line in process.communicate()[0].split()]
        assert not kept & set(simulated), "what was finished is simulated again"
        kept |= set(simulated[:-1])
    found, last = ask(small_tasks(count), tmp_path)
    assert not kept & set(last)
    assert found == all_shown(Simulations().run(small_tasks(count)))


@pytest.mark.slow
def test_two_processes_share_one_store(tmp_path: Path) -> None:
    processes = [begun(tmp_path, 60) for _ in range(3)]
    assert [process.communicate()[1] for process in processes] == ["", "", ""]
    assert ask(small_tasks(60), tmp_path)[1] == []
