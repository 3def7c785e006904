"""Compiled kernels on disk: damage is mended, and nothing that another user could have put there is loaded."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from files.cache import kernel_cache
from files.compiling.kernels import IS_COMPILED
from files.errors import HeadcountError
from files.outputs import cache_folder
from tests.files.kernel_machine import COMPILES, COMPILES_EACH_TIME, SOURCE, Machine, unkept
from tests.headcount.told import PROGRESS

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="nothing is compiled")
resource = pytest.importorskip("resource", reason="access rights of POSIX")
ROOT = Path(__file__).parents[2]


def test_a_kernel_is_compiled_once_and_its_folders_are_private(machine: Machine) -> None:
    before = os.umask(0)
    try:
        assert machine.run() == (False, [COMPILES])
    finally:
        os.umask(before)
    assert machine.run() == (True, [])
    made = [machine.base, *machine.base.rglob("*")]
    assert {path.stat().st_mode & 0o777 for path in made if path.is_dir()} == {0o700}
    assert [path for path in made if path.is_file()] == [machine.file]
    assert machine.file.stat().st_mode & 0o777 == 0o600


def test_a_changed_function_is_compiled_again(machine: Machine) -> None:
    machine.run()
    machine.source.write_text(SOURCE.replace("3 * n", "n + n + n"))
    assert machine.run() == (False, [COMPILES])


def test_another_system_gets_code_of_its_own(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.run()
    monkeypatch.setattr(kernel_cache, "_host", lambda: ("x86_64", "another C library"))
    assert machine.run() == (False, [COMPILES])


@pytest.mark.parametrize("changed", ["how kernels are compiled", "numba's version"])
def test_what_compiles_kernels_decides_which_are_loaded(
    changed: str, machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.run()
    if changed == "numba's version":
        monkeypatch.setattr(kernel_cache, "version", lambda _: "0.0")
    else:
        monkeypatch.setattr(kernel_cache, "_COMPILING", tmp_path)
    kernel_cache.sources_digest.cache_clear()
    assert machine.run() == (False, [COMPILES])
    kernel_cache.sources_digest.cache_clear()


def flipped(at: float) -> Callable[[Path], None]:
    def flip(file: Path) -> None:
        content = bytearray(file.read_bytes())
        content[int(at * (len(content) - 1))] ^= 16
        file.write_bytes(content)

    return flip


def full_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "note.txt").touch()


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def link(file: Path) -> None:
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "emptied": (lambda file: file.write_bytes(b""), "its content is damaged"),
    "torn": (lambda file: os.truncate(file, file.stat().st_size // 2), "its content is damaged"),
    "torn in the checksum": (lambda file: os.truncate(file, 20), "its content is damaged"),
    "longer": (lambda file: file.write_bytes(file.read_bytes() + b"\0"), "its content is damaged"),
    **{f"flipped at {at}": (flipped(at), "its content is damaged") for at in (0, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 1)},
    "no pickle": (lambda file: file.write_text("no pickle"), "its content is damaged"),
    "a folder": (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
    "a full folder": (full_folder, "Is a directory"),
    "a pipe": (pipe, "it is no file"),
    "a link": (link, "Too many levels of symbolic links"),
    "writable by others": (lambda file: file.chmod(0o666), "other users may write to it"),
    "unreadable": (lambda file: file.chmod(0), "Permission denied"),
}


def passes_without_root_s_rights(request: pytest.FixtureRequest) -> bool:
    """Run the asking test in a process that modes bind as they bind any user, if this is root's; False in that one."""
    if os.geteuid() != 0 or "BOUND_BY_MODES" in os.environ:
        return False
    if (setpriv := shutil.which("setpriv")) is None:
        pytest.skip("root may read and write everywhere, and there is no setpriv to take that right away")
    rights = "-dac_override,-dac_read_search"
    bound = [
        setpriv,
        f"--bounding-set={rights}",
        f"--inh-caps={rights}",
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-q",
        "-m",
        "slow",
    ]
    done = subprocess.run(
        [*bound, request.node.nodeid], cwd=ROOT, env=os.environ | {"BOUND_BY_MODES": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return True


@pytest.mark.slow
@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_file_is_compiled_again_with_one_note(
    name: str, machine: Machine, request: pytest.FixtureRequest
) -> None:
    if name == "unreadable" and passes_without_root_s_rights(request):
        return
    machine.run()
    damage, reason = DAMAGES[name]
    damage(machine.file)
    note = f"headcount: a compiled kernel in {machine.file.parent} was discarded and compiled again: {reason}"
    loaded, told = machine.run()
    assert (loaded, told) == (False, [COMPILES, note])
    assert machine.run() == (True, [])


def test_another_function_s_kernel_in_its_place_is_not_loaded(machine: Machine) -> None:
    other = machine.source.with_name("other.py")
    other.write_text(SOURCE.replace("3 * n", "4 * n - n"))
    machine.run()
    first = machine.file
    first.rename(first.with_name("kept"))
    machine.run(other)
    machine.file.rename(first.with_name("swapped"))
    shutil.copy(first.with_name("swapped"), first)
    loaded, told = machine.run()
    assert not loaded
    assert told[-1].endswith("its content is damaged")


def test_a_file_that_cannot_be_written_to_is_loaded(machine: Machine) -> None:
    machine.run()
    machine.file.chmod(0o400)
    machine.file.parent.chmod(0o500)
    assert machine.run() == (True, [])
    machine.file.parent.chmod(0o700)


def test_a_full_disk_leaves_no_half_file_and_one_note(machine: Machine) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))
    try:
        loaded, told = machine.run()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (folder,) = machine.base.glob("kernels/*")
    assert (loaded, told) == (False, [COMPILES, unkept(folder, "File too large")])
    assert not list(folder.iterdir())


def no_folder(base: Path) -> tuple[Path, str]:
    base.write_text("a file")
    return base, "File exists"


def no_kernels_folder(base: Path) -> tuple[Path, str]:
    base.mkdir()
    (base / "kernels").write_text("a file")
    return base / "kernels", "File exists"


def sealed(base: Path) -> tuple[Path, str]:
    base.mkdir(0o500)
    return base / "kernels", "Permission denied"


@pytest.mark.slow
@pytest.mark.parametrize("unusable", [no_folder, no_kernels_folder, sealed], ids=lambda made: made.__name__)
def test_without_a_cache_folder_it_still_answers(
    unusable: Callable[[Path], tuple[Path, str]], machine: Machine, request: pytest.FixtureRequest
) -> None:
    if unusable is sealed and passes_without_root_s_rights(request):
        return
    note = unkept(*unusable(machine.base))
    assert machine.run() == (False, [note, COMPILES_EACH_TIME])


@pytest.mark.skipif(sys.platform != "linux", reason="where homes are looked up")
def test_a_user_without_a_home_is_told_what_to_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container with a user id that is nobody's: else a folder named ~ would be made where the command runs."""
    for name in ("HEADCOUNT_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)  # KeyError, as of an unknown user
    with pytest.raises(HeadcountError, match="no home directory for the cache; name a folder in HEADCOUNT_CACHE_DIR"):
        cache_folder()


WATCHED = """
import sys
opened = []
sys.addaudithook(lambda event, arguments: event in ("open", "os.mkdir") and opened.append(str(arguments[0])))
import small
assert small.triple(14) == 42
print([path for path in opened if path.endswith((".nbi", ".nbc", ".kernel")) or "shared" in path])
"""


@pytest.mark.slow
def test_numba_s_own_folders_are_never_looked_at(machine: Machine) -> None:
    machine.base.write_text("a file")
    shared = machine.source.with_name("shared")
    shared.mkdir()
    variables = {"TMPDIR": str(shared), "NUMBA_CACHE_DIR": str(shared), "XDG_CACHE_HOME": str(shared)}
    done = subprocess.run(
        [sys.executable, "-c", WATCHED], cwd=machine.source.parent, capture_output=True, text=True, check=True,
        env=os.environ | variables | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(machine.source.parent)])},
    )  # fmt: skip
    assert done.stdout == "[]\n"
    assert done.stderr.splitlines() == [unkept(machine.base, "File exists"), COMPILES_EACH_TIME]
    assert not list(shared.iterdir())


def test_a_function_without_a_file_is_compiled_each_time(machine: Machine) -> None:
    names: dict[str, Any] = {"__name__": "typed_in"}
    exec(SOURCE, names)
    assert names["triple"](14) == 42
    assert not list(machine.base.rglob("*.kernel"))


@pytest.mark.slow
def test_threads_and_processes_may_race_for_an_empty_cache(machine: Machine) -> None:
    text = (
        "from concurrent.futures import ThreadPoolExecutor\nimport small\n"
        "with ThreadPoolExecutor(4) as threads:\n    print(set(threads.map(small.triple, [14] * 8)))\n"
    )
    path = os.pathsep.join([str(ROOT), str(machine.source.parent)])
    run = [sys.executable, "-c", text]
    processes = [
        subprocess.Popen(run, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["{42}\n"] * 3
    assert [path for path in machine.base.rglob("*") if path.is_file()] == [machine.file]


@pytest.mark.slow
def test_of_processes_that_need_the_same_kernel_one_compiles_it(machine: Machine) -> None:
    text = "import sys, small\nsmall.triple(14)\nprint(int('numba' in sys.modules))\n"
    path = os.pathsep.join([str(ROOT), str(machine.source.parent)])
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", text], env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert sorted(process.communicate(timeout=120)[0] for process in processes) == ["0\n", "0\n", "0\n", "1\n"]


def test_a_process_that_waits_says_so_and_loads_what_the_other_compiled(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    machine.run()
    kept, lock = machine.file.with_name("kept"), machine.file.with_suffix(".lock")
    machine.file.rename(kept)
    other = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)

    def finish(_: float) -> None:
        kept.rename(kept.with_name(f"{lock.stem}.kernel"))
        os.close(other)

    monkeypatch.setattr(kernel_cache.time, "sleep", finish)
    assert machine.run() == (True, [COMPILES])
    assert not lock.exists()


def test_a_process_that_never_ends_is_not_waited_for_for_ever(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fcntl = pytest.importorskip("fcntl")
    machine.run()
    lock = machine.file.with_suffix(".lock")
    machine.file.unlink()
    other = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(other, fcntl.LOCK_EX)
    monkeypatch.setattr(kernel_cache, "_LONGEST_WAIT_S", 0.0)
    assert machine.run() == (False, [COMPILES])
    os.close(other)


@pytest.mark.slow
def test_what_does_not_simulate_makes_no_cache(machine: Machine) -> None:
    asked = [str(Path(sys.executable).with_name("headcount")), "memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
    subprocess.run(asked, stdout=subprocess.DEVNULL, check=True)
    assert not machine.base.exists()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["torn", "flipped at 0.5"])
def test_the_damaged_core_gives_the_same_answer_with_one_note(damage: str, machine: Machine) -> None:
    on = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
    load = ["--input-len", "100", "--output-len", "10", "--concurrency", "2", "--seed", "1", "--json"]
    asked = [str(Path(sys.executable).with_name("headcount")), "simulate", *on, *load]

    def answer() -> tuple[str, list[str]]:
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        return done.stdout, [line for line in done.stderr.splitlines() if not PROGRESS.search(line)]

    first, told = answer()
    assert told == [COMPILES]
    files = list(machine.base.rglob("*.kernel"))
    for file in files:
        DAMAGES[damage][0](file)
    note = f"headcount: a compiled kernel in {files[0].parent} was discarded and compiled again: its content is damaged"
    assert answer() == (first, [note, COMPILES])  # the router's first, then the core's, whose note is the same
    assert answer() == (first, [])


@pytest.mark.slow
def test_kernels_of_workloads_are_compiled_once_too(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 1000, "output_length": 5, "hash_ids": [1, 2]}\n' * 3)
    command = [sys.executable, "-m", "headcount", "workload", "describe", str(trace)]
    kept = tmp_path / "cache" / "kernels"

    def times_by_kernel(**variables: str) -> dict[Path, int]:
        own = {**os.environ, "HEADCOUNT_CACHE_DIR": str(kept.parent), **variables}
        subprocess.run(command, check=True, capture_output=True, env=own)
        return {path: path.stat().st_mtime_ns for path in kept.rglob("workloads.*.kernel")}

    first = times_by_kernel()
    assert len(first) > 3
    assert times_by_kernel() == first
    both = times_by_kernel(NUMBA_CPU_NAME="x86-64", NUMBA_CPU_FEATURES="")
    assert len(both) == 2 * len(first), "what numba itself compiles is for one processor alone"
