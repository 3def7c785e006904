"""How long the page takes: `python -m validation.web_page`.

Starts `headcount web` with an empty cache beside compiled kernels, waits until it rests, asks one new scenario of each
question until its first number is shown, then looks at what is finished. Elapsed seconds, and seconds of processor time
of the server with its jobs, which a busy machine changes less. Reads /proc, so it runs on Linux.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from files.cache.kernel_cache import sources_digest
from files.outputs import cache_folder
from headcount.web.scenario import read_scenario
from simulator.core.jit import SOURCES
from validation.markdown import table

PORT: Final = 8621
HERE: Final = f"http://127.0.0.1:{PORT}"
MODEL: Final = {"model": "llama-3.1-8b"}
SCENARIOS: Final[Mapping[str, Mapping[str, str]]] = {
    "capacity": {**MODEL, "gpu": "h100-sxm", "gpus": "1,2"},
    "plan": {**MODEL, "users": "500"},
    "compare": {**MODEL, "gpu": "h100-sxm,l40s,a100-80gb", "gpus": "1"},
    "whatif": {**MODEL, "gpu": "h100-sxm", "vary": "context=x1,x2,x4"},
    "simulate": {**MODEL, "gpu": "h100-sxm", "workload": "chat", "users": "400"},
    "memory": {**MODEL, "gpu": "h100-sxm"},
}
FINISHED: Final = {**MODEL, "gpu": "h100-sxm", "gpus": "1", "precision": "20%", "replications": "2"}


@contextmanager
def served() -> Iterator[int]:
    """The process id of a page that answers."""
    with TemporaryDirectory() as folder:
        kernels = cache_folder() / "kernels" / sources_digest(SOURCES)
        if kernels.is_dir():
            shutil.copytree(kernels, Path(folder) / "kernels" / kernels.name)
        command = [sys.executable, "-m", "headcount", "web", "--port", str(PORT)]
        process = subprocess.Popen(
            command, env={**os.environ, "HEADCOUNT_CACHE_DIR": folder}, stdout=subprocess.DEVNULL
        )
        try:
            _until(_is_there, 60)
            yield process.pid
        finally:
            process.terminate()
            process.wait()


def _is_there() -> bool:
    try:
        return httpx.get(HERE, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def _until(holds: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.02)


def processor_s(pid: int) -> float:
    """Of a process and all that descends from it, those that have ended too."""
    ticks = 0
    for path in Path("/proc").iterdir():
        if path.name.isdecimal() and _descends(int(path.name), pid):
            ticks += sum(map(int, _stat(int(path.name))[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _descends(pid: int, ancestor: int) -> bool:
    while pid not in (ancestor, 0):
        fields = _stat(pid)
        pid = int(fields[1]) if fields else 0
    return pid == ancestor


def _stat(pid: int) -> list[str]:
    """What /proc says after the command's name; nothing of a process that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def rest(pid: int) -> None:
    """Until the server and its processes have done nothing for a second."""
    before = -1.0
    while (now := processor_s(pid)) > before + 0.02:
        before = now
        time.sleep(1)


def timed(pid: int, what: str, holds: Callable[[], bool]) -> tuple[str, str, str]:
    began_s, used_s = time.monotonic(), processor_s(pid)
    _until(holds, 300)
    return what, f"{time.monotonic() - began_s:.2f}", f"{processor_s(pid) - used_s:.2f}"


def ask(question: str, given: Mapping[str, str]) -> str:
    """The key of a scenario that was just asked."""
    assert httpx.post(f"{HERE}/{question}", data=given, timeout=30).status_code == 303
    return read_scenario(question, list(given.items())).key


def has_number(key: str) -> bool:
    """Whether an estimate, a part of the answer or the answer is shown."""
    shown = httpx.get(f"{HERE}/live/{key}", timeout=30).json()["html"]
    assert "refused" not in shown, shown
    return any(
        mark in shown for mark in ("small-headline", "The answer so far", 'class="found"', "The answer is there")
    )


def main() -> None:
    rows = []
    with served() as pid:
        rest(pid)
        rows.append(timed(pid, "first page", lambda: httpx.get(f"{HERE}/capacity", timeout=30).status_code == 200))
        for question, given in SCENARIOS.items():
            began_s, used_s = time.monotonic(), processor_s(pid)
            key = ask(question, given)
            _until(lambda key=key: has_number(key), 300)  # type: ignore[misc]
            took = f"{time.monotonic() - began_s:.2f}", f"{processor_s(pid) - used_s:.2f}"
            rows.append((f"first number of {question}", *took))
            httpx.post(f"{HERE}/cancel/{key}")
            rest(pid)
        key = ask("capacity", FINISHED)
        _until(lambda: httpx.get(f"{HERE}/report/{key}", timeout=30).status_code == 200, 300)
        rest(pid)
        at = {**FINISHED, "at.users": "200", "at.context": "x1", "at.gpus": "1"}
        slid = f"{HERE}/slide/capacity"
        rows.append(timed(pid, "a slider", lambda: httpx.get(slid, params=at).json()["state"] == "known"))
        rows.append(timed(pid, "a finished report", lambda: httpx.get(f"{HERE}/report/{key}").status_code == 200))
    print(table(("what", "elapsed, s", "processor, s"), rows))


if __name__ == "__main__":
    main()
