"""The page in a real browser and with real jobs: from the form to the report, and what goes wrong on the way."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from files.cache.kernel_cache import sources_digest
from files.outputs import cache_folder
from headcount.web.fields import QUESTIONS
from headcount.web.scenario import Scenario, read_scenario
from simulator.core.jit import SOURCES
from tests.headcount.conftest import SHORT_ANSWERS

pytestmark = pytest.mark.slow
KERNELS = cache_folder() / "kernels" / sources_digest(SOURCES)
MEMORY = "/memory?model=llama-3.1-8b&gpu=h100-sxm"
QUICK = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "gpus": "1", "precision": "20%", "replications": "2"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """`headcount web` with a cache of its own, compiled kernels apart."""
    with serving(tmp_path_factory.mktemp("cache")) as address:
        yield address


@contextmanager
def serving(cache: Path) -> Iterator[str]:
    if (kernels := KERNELS).is_dir():
        shutil.copytree(kernels, cache / "kernels" / kernels.name)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = {**os.environ, "HEADCOUNT_CACHE_DIR": str(cache)}
    line = [sys.executable, "-m", "headcount", "web", "--port", str(port), "--max-upload", "2M", "--job-time", "5min"]
    with subprocess.Popen(line, env=env, stdout=subprocess.PIPE, text=True) as process:
        address = f"http://127.0.0.1:{port}"
        try:
            _until(lambda: _answers(address), 60)
            yield address
        finally:  # a failed test too ends its server
            process.send_signal(signal.SIGINT)
            process.wait(timeout=20)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 30 MB beside the compiled kernels."""
    if os.name != "posix" or os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs to mount a small disk")
    place = tmp_path / "disk"
    place.mkdir()
    size = 30_000_000 + sum(path.stat().st_size + 4096 for path in KERNELS.rglob("*"))
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)], check=False)
    if mounted.returncode:
        pytest.skip("needs to mount a small disk")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_on_a_full_disk_uploads_are_refused_and_questions_are_answered(small_disk: Path) -> None:
    with serving(small_disk) as address:
        before = _ended(_asked(address, "memory", model="llama-3.1-8b", gpu="h100-sxm"))
        assert "Fits" in before
        with pytest.raises(OSError), (small_disk / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(100_000))
        with (small_disk / "filler").open("ab", buffering=0) as filler, suppress(OSError):
            while True:
                filler.write(bytes(100))
        given = {"model": "llama-3.1-8b", "gpu": "h100-sxm"}
        upload = {"file.workload": ("t.csv", b"1,2\n" * 100_000)}
        refused = httpx.post(f"{address}/capacity", data=given, files=upload, timeout=60)
        assert refused.status_code == 507 and "cannot keep the file" in refused.text
        asked = _asked(address, "memory", **given, seed="7")
        assert "Fits" in _ended(asked)
        assert httpx.get(f"{address}/report/{_scenario(asked).key}", timeout=60).status_code == 200
        assert httpx.get(f"{address}/history", timeout=60).status_code == 200


def _answers(address: str) -> bool:
    try:
        return httpx.get(address, timeout=60).status_code == 200
    except httpx.TransportError:
        return False


def _until(holds: Callable[[], Any], seconds: float) -> Any:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := holds():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds} s")


def _asked(server: str, question: str, files: dict[str, tuple[str, bytes]] | None = None, **given: str) -> str:
    """The address of the scenario that was asked."""
    named = {f"file.{name}": file for name, file in (files or {}).items()}
    found = httpx.post(f"{server}/{question}", data=given, files=named, timeout=60)
    assert found.status_code == 303, found.text
    return server + found.headers["location"]


def _ended(address: str, seconds: float = 240) -> str:
    """The page once its job is over."""
    _until(lambda: _is_over(address), seconds)
    return httpx.get(address, timeout=60).text


def _is_over(address: str) -> bool:
    shown = httpx.get(address, timeout=60).text
    return 'id="report"' in shown or 'class="refused"' in shown or "Cancelled" in shown


@pytest.fixture
def tab(browser: Any) -> Iterator[Any]:
    """A tab whose console must stay empty."""
    said: list[str] = []
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    yield page
    context.close()
    assert said == []


def test_from_the_form_to_the_report_the_sliders_and_back(server: str, tab: Any) -> None:
    tab.goto(f"{server}/capacity")
    for name in ("model", "gpu", "gpus"):
        tab.fill(f"#f-{name}", QUICK[name])
    tab.set_input_files("input[name='file.workload']", SHORT_ANSWERS)
    tab.click("summary:has-text('More')")
    tab.fill("#f-precision", QUICK["precision"])
    tab.fill("#f-replications", QUICK["replications"])
    tab.click("button:has-text('Answer')")
    tab.wait_for_selector("#report", timeout=180_000)
    asked = tab.url
    assert "workload=upload" in asked
    tab.frame_locator("#report").locator("h1").wait_for(timeout=60_000)
    _until(lambda: tab.locator("#report").evaluate("each => each.offsetHeight") > 1000, 60)

    tab.click("summary:has-text('Sliders')")
    _until(lambda: "users" in tab.inner_text("#slid"), 60)
    tab.locator("#s-users").press("Home")
    _until(lambda: "10 users: served" in tab.inner_text("#slid"), 60)
    tab.locator("#s-gpus").press("ArrowRight")
    _until(lambda: "Not simulated yet" in tab.inner_text("#slid"), 60)
    _until(lambda: "2 GPUs serve them" in tab.inner_text("#slid"), 120)

    tab.click("text=Open it")
    tab.wait_for_url("**gpus=2**")
    tab.wait_for_selector("#report")
    tab.go_back()
    assert tab.url == asked and tab.locator("#report").count() == 1

    tab.goto(f"{server}/history")
    for box in tab.locator("input[type=checkbox]").all()[:2]:
        box.check()
    tab.click("button:has-text('Compare')")
    assert tab.locator("tr.differs").count() > 1


def test_a_link_in_a_new_tab_shows_the_answer(server: str, tab: Any) -> None:
    _ended(_asked(server, "memory", model="llama-3.1-8b", gpu="h100-sxm"))
    tab.goto(server + MEMORY)
    assert tab.locator("h1").inner_text().startswith("Fits")
    assert tab.frame_locator("#report").locator("h1").count() == 1, "the answer stands once, in the report"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(server: str, browser: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    _ended(_asked(server, "memory", model="llama-3.1-8b", gpu="h100-sxm"))
    context = browser.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    pages = [f"/{question}" for question in QUESTIONS]
    report = f"/report/{_scenario(server + MEMORY).key}"
    for path in ("/", *pages, "/history", MEMORY, report, "/plan?model=/etc/passwd", "/nowhere"):
        page.goto(server + path)
        found = axe.run(page).response["violations"]
        assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == [], path
    context.close()


@pytest.mark.parametrize("width", [420, 768, 1280, 1920])
def test_no_page_is_wider_than_the_window(server: str, browser: Any, width: int) -> None:
    _ended(_asked(server, "memory", model="llama-3.1-8b", gpu="h100-sxm"))
    page = browser.new_page(viewport={"width": width, "height": 900})
    for path in ("/", "/plan", "/capacity", "/history", MEMORY):
        page.goto(server + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, path
    page.close()


@pytest.mark.parametrize(
    ("question", "upload", "told"),
    [
        ("capacity", ("workload", "t.csv", b"\x00\x01\x02"), "not a text file"),
        ("capacity", ("workload", "t.csv", b"a,b\n1,2\n"), "t.csv"),
        ("capacity", ("workload", "p.toml", b"extends = '../../../etc/passwd'\n"), "may be read here"),
        ("capacity", ("workload", "p.toml", b"extends = '/etc/hostname'\n"), "may be read here"),
        ("capacity", ("model", "config.json", b"{"), "config.json"),
        ("capacity", ("model", "config.json", b"[" * 100_000), "config.json"),
        ("capacity", ("startup-log", "s.log", b"no log\n"), "s.log"),
        ("capacity", ("latency-profile", "p.toml", b"<script>alert(1)</script>"), "p.toml"),
        ("check", ("paths", "bench.json", b'{"duration": "x"}'), "bench.json"),
    ],
)
def test_a_malformed_upload_is_refused_by_the_reader(
    server: str, question: str, upload: tuple[str, str, bytes], told: str
) -> None:
    field, name, content = upload
    given = {"gpu": "h100-sxm"} if field == "model" else {"gpu": "h100-sxm", "model": "llama-3.1-8b"}
    shown = _ended(_asked(server, question, {field: (name, content)}, **given))
    assert told in shown and "fault of Headcount" not in shown and "<script>alert" not in shown


def test_a_pasted_line_reads_no_file_of_the_server(server: str, tmp_path: Path) -> None:
    secret = tmp_path / "config.json"
    secret.write_text('{"architectures": ["LlamaForCausalLM"]}')
    shown = _ended(_asked(server, "memory", gpu="h100-sxm", **{"vllm-args": f"vllm serve {secret}"}))
    assert "upload the file" in shown and "LlamaForCausalLM" not in shown


def test_a_killed_worker_is_told_and_the_next_question_is_answered(server: str) -> None:
    address = _asked(server, "capacity", **{**QUICK, "precision": "1%", "replications": ""}, seed="5")
    _until(lambda: "users" in httpx.get(address).text and _workers(server), 60)
    _until(lambda: _killed(server) and 'class="refused"' in httpx.get(address).text, 60)
    assert "ended by itself (signal 9)" in httpx.get(address).text
    assert "Fits" in _ended(_asked(server, "memory", model="llama-3.1-8b", gpu="h100-sxm", seed="1"))


def _workers(server: str) -> list[int]:
    """Processes that the server began, by what /proc tells."""
    port = server.rpartition(":")[2]
    parents = [pid for pid in _pids() if f"--port\0{port}\0" in _line(pid)]
    return [pid for pid in _pids() if _parent(pid) in parents and "spawn_main" in _line(pid)]


def _killed(server: str) -> bool:
    for pid in _workers(server):
        os.kill(pid, signal.SIGKILL)
    return True


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_a_question_is_cancelled_at_once(server: str) -> None:
    address = _asked(server, "capacity", **{**QUICK, "precision": "1%", "replications": ""}, seed="6")
    _until(lambda: "Starting" in httpx.get(address).text or "users" in httpx.get(address).text, 30)
    httpx.post(f"{server}/cancel/{_scenario(address).key}")
    assert "Cancelled" in _ended(address, 60)


def _scenario(address: str) -> Scenario:
    found = httpx.URL(address)
    return read_scenario(found.path.strip("/"), found.params.multi_items())


def test_a_hundred_questions_at_once_are_answered_or_refused_and_the_page_stays_up(server: str) -> None:
    def ask(seed: int) -> int:
        given = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "seed": str(1000 + seed)}
        return httpx.post(f"{server}/capacity", data=given, timeout=60).status_code

    with ThreadPoolExecutor(100) as pool:
        codes = list(pool.map(ask, range(100)))
    assert set(codes) == {303, 503} and codes.count(303) >= 20
    assert httpx.get(server, timeout=60).status_code == 200
    for seed in range(100):
        given = {"model": "llama-3.1-8b", "gpu": "h100-sxm", "seed": str(1000 + seed)}
        httpx.post(f"{server}/cancel/{read_scenario('capacity', given.items()).key}")


def test_a_client_that_hangs_up_disturbs_nobody(server: str) -> None:
    host, port = server.removeprefix("http://").split(":")
    head = f"POST /capacity HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 1000000\r\n"
    for _ in range(20):
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode())
    with pytest.raises(httpx.TimeoutException):
        httpx.get(f"{server}/capacity", timeout=0.0001)
    assert httpx.get(server, timeout=60).status_code == 200
