"""The process as its caller sees it: closed pipes, full disks, Ctrl-C, compilation."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

HEADCOUNT = str(Path(sys.executable).with_name("headcount"))
ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("--help",), ("models",), ("gpus", "--json"), ("memory", *ON)], ids=str)
def test_a_reader_that_has_had_enough_is_no_error(arguments: tuple[str, ...]) -> None:
    assert told_before_a_closed_pipe(*arguments) == ""


@pytest.mark.slow
@pytest.mark.parametrize("how", [(), ("--json",)], ids=str)
def test_a_report_is_written_where_the_reader_of_the_output_has_had_enough(
    how: tuple[str, ...], tmp_path: Path
) -> None:
    """As with `headcount … --report FILE | head -1`."""
    report = tmp_path / "report.md"
    told = told_before_a_closed_pipe("memory", *ON, *how, "--report", str(report))
    assert told == (f"report: {report}\n" if how else "")
    assert report.read_text(encoding="utf-8").startswith("# Does ")


def told_before_a_closed_pipe(*arguments: str) -> str:
    """What it says on stderr."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([HEADCOUNT, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert done.returncode == 0
    return done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [("models",), ("gpus", "--json")], ids=str)
def test_a_full_disk_is_told_in_one_line(arguments: tuple[str, ...]) -> None:
    full = Path("/dev/full")
    if not full.is_char_device():
        pytest.skip("this system has no /dev/full")
    with full.open("w") as out:
        done = subprocess.run([HEADCOUNT, *arguments], stdout=out, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (2, "headcount: the output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
@pytest.mark.parametrize("delay_s", [0.5, 1.5])
def test_ctrl_c_stops_a_search_in_one_line(delay_s: float) -> None:
    many = ("--gpus", "1,2,4,8,16", "--replications", "50")
    heeded = signal.signal(signal.SIGINT, signal.default_int_handler)  # a suite run in the background ignores Ctrl-C
    process = subprocess.Popen(
        [HEADCOUNT, "capacity", *ON, *many], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    signal.signal(signal.SIGINT, heeded)
    time.sleep(delay_s)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    told = [line for line in err.splitlines() if "compiling the simulation core" not in line]  # on a fresh machine
    assert (process.returncode, out, told) == (130, "", ["headcount: stopped"])


@pytest.mark.slow
def test_the_first_simulation_says_that_it_compiles(tmp_path: Path) -> None:
    """One line on stderr, at once; stopped there, since the compiler would take a while."""
    environment = os.environ | {"HEADCOUNT_CACHE_DIR": str(tmp_path)}
    load = ("--input-len", "100", "--output-len", "10", "--concurrency", "1")
    with subprocess.Popen(
        [HEADCOUNT, "simulate", *ON, *load],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        assert "compiling the simulation core for this machine, once" in process.stderr.readline()
        process.kill()
