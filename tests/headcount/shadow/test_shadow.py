"""An emulated fleet beside its simulation, and its metrics by each of the ways in."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from calibrate.readers.parsing.metrics_text import Sample
from calibrate.record.watch_server import kept_open
from calibrate.shadow.drifts import Drift, Kind
from calibrate.shadow.expected import expect
from calibrate.shadow.sources import ask_prometheus, ask_servers, read_recordings
from calibrate.shadow.windows import Tick, windows
from files.errors import HeadcountError
from headcount.inputs.measured import MeasuredInput
from headcount.inputs.metrics import MetricsInput
from headcount.queries.shadow import Shadow, shadow
from simulator.deployment import Deployment, resolve
from simulator.engines.vllm.arguments import EngineArgs
from tests.headcount.shadow.emulated_fleet import START_S, EmulatedFleet

pytest.importorskip("prometheus_client")


@pytest.fixture(scope="module")
def deployment() -> Deployment:
    return resolve("llama-3.1-8b", "h100-sxm", EngineArgs())


@pytest.fixture(scope="module")
def ticks(deployment: Deployment) -> list[Tick]:
    """Nine minutes of two engines, of which steps take 1.4 times as long after five."""
    fleet = EmulatedFleet(deployment=deployment, replicas=2, slow=lambda t: 1.4 if t >= 300 else 1.0)
    return list(fleet.ticks(540.0))


def beside(ticks: Sequence[Tick], monkeypatch: pytest.MonkeyPatch) -> list[Shadow]:
    monkeypatch.setattr("headcount.queries.shadow._ticks", lambda metrics, lost: iter(ticks))
    return list(shadow(metrics=MetricsInput(), measured=MeasuredInput(gpu="h100-sxm")))


def drifts(found: Sequence[Shadow]) -> list[Drift]:
    return [drift for each in found for drift in each.drifts if drift.kind is not Kind.LOAD]


def test_a_slowed_engine_is_named_within_three_minutes(ticks: list[Tick], monkeypatch: pytest.MonkeyPatch) -> None:
    found = beside(ticks, monkeypatch)
    told = drifts(found)
    assert {each.kind for each in told} == {Kind.STEPS}
    assert any(each.kind is Kind.STEPS for shown in found[:8] for each in shown.drifts)
    steps = next(each for each in told if each.figure == "itl_s")
    assert START_S + 240 < steps.since_s <= START_S + 360
    assert steps.factor == pytest.approx(1.4, rel=0.1)
    before, after = found[4].most_requests_per_s, found[-1].most_requests_per_s
    assert before is not None and after is not None
    assert after < 0.85 * before, "there is less headroom on slower engines"


def test_what_is_simulated_for_the_load_is_what_the_fleet_shows(
    ticks: list[Tick], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = beside(ticks, monkeypatch)
    settled = found[2:5]
    for name, off in (("ttft_s", 0.15), ("itl_s", 0.05), ("running", 0.35), ("prefix_hit_rate", 0.1)):
        ratios = [each.window.figures[name] / each.expected[name].mean for each in settled]
        assert sum(ratios) / len(ratios) == pytest.approx(1.0, rel=off), name
    assert found[1].bias == {}, "three windows make a baseline"
    assert settled[-1].bias["itl_s"] == pytest.approx(1.0, rel=0.05)


def test_windows_hold_each_request_once(ticks: list[Tick]) -> None:
    found = list(windows(ticks, 60.0))
    assert [each.engines for each in found] == [2] * 9
    assert all(one.end_s == two.start_s for one, two in pairwise(found))
    counted = [sum(sample.value for sample in tick.servers["server"]
                   if sample.name == "vllm:time_to_first_token_seconds_count") for tick in ticks]  # fmt: skip
    assert sum(each.first_tokens for each in found) == counted[-1] - counted[0]


def test_a_fleet_that_is_hardly_used_is_watched_on(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than a request a minute for each engine: a simulated server may get none."""
    fleet = EmulatedFleet(deployment=deployment, replicas=4, rate=lambda _: 0.02)
    found = beside(list(fleet.ticks(900.0)), monkeypatch)
    assert len(found) == 15
    assert any(each.window.arrivals for each in found) and any(not each.window.arrivals for each in found)
    assert drifts(found) == []


def test_the_noise_of_many_servers_is_smaller(deployment: Deployment, ticks: list[Tick]) -> None:
    (*_, last) = windows(ticks[:17], 60.0)
    few, many = (expect(deployment, [replace(last, engines=n, arrivals=100.0 * n)]) for n in (1, 16))
    assert many["ttft_s"].deviation == pytest.approx(few["ttft_s"].deviation / 4)
    assert many["running"].mean == pytest.approx(16 * few["running"].mean)
    assert many["running"].deviation == pytest.approx(4 * few["running"].deviation)


@pytest.mark.slow
def test_an_hour_raises_no_false_alarm(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    assert drifts(beside(list(EmulatedFleet(deployment=deployment).ticks(3600.0)), monkeypatch)) == []


@pytest.mark.slow
def test_a_load_that_grows_is_named_and_no_drift(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = EmulatedFleet(deployment=deployment, rate=lambda t: 4.0 + t / 100)
    found = beside(list(fleet.ticks(1500.0)), monkeypatch)
    assert drifts(found) == []
    assert any(each.kind is Kind.LOAD and each.figure == "requests_per_s" for shown in found for each in shown.drifts)
    assert found[-1].saturates_in_s is not None


# -- the ways in


def text_of(samples: Sequence[Sample]) -> str:
    lines = []
    for sample in samples:
        labels = ",".join(f'{name}="{value}"' for name, value in sample.labels)
        lines.append(f"{sample.name}{{{labels}}} {sample.value}" if labels else f"{sample.name} {sample.value}")
    return "\n".join(lines) + "\n"


@contextmanager
def serving(answer: Callable[[str], str]) -> Iterator[str]:
    """A server of HTTP that answers a path with its query so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answer(self.path).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def recorded(ticks: Sequence[Tick], folder: Path) -> Path:
    with kept_open(folder, "http://server/metrics") as write:
        for tick in ticks:
            write(tick.unix_s, text_of(tick.servers["server"]))
    return folder


def vllm_only(tick: Tick) -> set[Sample]:
    (samples,) = tick.servers.values()
    return {sample for sample in samples if sample.name.startswith("vllm:")}


def test_what_is_recorded_is_replayed(ticks: list[Tick], tmp_path: Path) -> None:
    again = list(read_recordings([recorded(ticks, tmp_path / "live")], 15.0))
    assert [tick.unix_s for tick in again] == [tick.unix_s for tick in ticks]
    assert all(vllm_only(one) == vllm_only(two) for one, two in zip(ticks, again, strict=True))


def test_a_server_is_asked_and_kept(ticks: list[Tick], tmp_path: Path) -> None:
    with serving(lambda _: text_of(ticks[4].servers["server"])) as url:
        found = []
        for tick in ask_servers([url], interval_s=0.05, folders=[tmp_path / "live"]):
            found.append(tick)
            if len(found) == 3:
                break
    assert all(vllm_only(tick) == vllm_only(ticks[4]) for tick in found)
    assert len(list(read_recordings([tmp_path / "live"], 0.05))) >= 3


def matrix(ticks: Sequence[Tick], path: str) -> str:
    """As Prometheus answers: the value at each step, of each series that the query names."""
    asked = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    assert urlsplit(path).path == "/api/v1/query_range"
    names = asked["query"].split('"')[1].split("|")
    start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
    found: dict[tuple[str, Any], list[tuple[float, str]]] = {}
    for tick in ticks:
        if start <= tick.unix_s <= end and (tick.unix_s - start) % step < 1e-6:
            for sample in tick.servers["server"]:
                if sample.name in names:
                    found.setdefault((sample.name, sample.labels), []).append((tick.unix_s, f"{sample.value}"))
    result = [
        {"metric": {"__name__": name, **dict(labels), "instance": "10.0.0.7:8000"}, "values": values}
        for (name, labels), values in found.items()
    ]
    return json.dumps({"status": "success", "data": {"resultType": "matrix", "result": result}})


def test_prometheus_tells_the_same_windows_as_the_server(ticks: list[Tick]) -> None:
    with serving(lambda path: matrix(ticks, path)) as url:
        asked = list(ask_prometheus(url, interval_s=15.0, from_s=START_S, until_s=START_S + 540.0))
    assert [tick.unix_s for tick in asked] == [tick.unix_s for tick in ticks]
    assert {name for tick in asked for name in tick.servers} == {"10.0.0.7:8000"}
    for one, two in zip(windows(ticks, 60.0), windows(asked, 60.0), strict=True):
        assert two.figures == pytest.approx(one.figures)
        assert (two.arrivals, two.prompt_tokens, two.engines) == (one.arrivals, one.prompt_tokens, one.engines)
        assert two.lengths == one.lengths


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("<html>", "does not answer as a Prometheus does"),
        ('{"status": "error", "error": "parse error: unexpected }"}', "refuses the question: parse error"),
        ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "has none of vLLM's series"),
    ],
)
def test_what_is_no_prometheus_of_vllm_is_said_to_be_none(answer: str, told: str) -> None:
    with serving(lambda _: answer) as url, pytest.raises(HeadcountError, match=told):
        list(ask_prometheus(url, interval_s=15.0, from_s=START_S, until_s=START_S + 60.0))


def test_the_command_replays_a_recording_as_text_and_as_json(
    ticks: list[Tick], tmp_path: Path, headcount: Callable[..., Any]
) -> None:
    folder = recorded(ticks, tmp_path / "live")
    done = headcount("shadow", "--replay", folder, "--gpu", "h100-sxm", "--think-time", "20s")
    assert done.code == 0, done.err
    assert "measured (simulated)" in done.out.splitlines()[0]
    assert "drift: ITL is 1." in done.out
    assert "users (" in done.out
    lines = headcount("shadow", "--replay", folder, "--gpu", "h100-sxm", "--json").out.splitlines()
    shown = [json.loads(line) for line in lines]
    assert len(shown) == 9
    assert [each["kind"] for each in shown[-1]["open_drifts"]]
    assert shown[-1]["measured"]["itl_s"] > shown[0]["measured"]["itl_s"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "give one source"),
        (("--url", "http://a", "--replay", "x"), "give one source"),
        (("--url", "a"), "is not the address of a server"),
        (("--url", "http://127.0.0.1:1"), "cannot be reached"),
        (("--replay", "nowhere"), "holds no recording of a server"),
        (("--replay", "nowhere", "--out", "x"), "--out is not for --replay"),
        (("--url", "http://127.0.0.1:1", "--since", "1h"), "--since is not for --url"),
        (("--url", "http://127.0.0.1:1", "--interval", "2min"), "--interval at most --every"),
        (("--url", "http://127.0.0.1:1", "--duration", "5s"), "give at least one window"),
    ],
)
def test_what_cannot_be_followed_is_one_clear_error(
    given: Sequence[str], told: str, headcount: Callable[..., Any]
) -> None:
    done = headcount("shadow", *given, "--gpu", "h100-sxm")
    assert done.code == 2
    assert told in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_metrics_that_end_too_soon_are_said_to(
    ticks: list[Tick], tmp_path: Path, headcount: Callable[..., Any]
) -> None:
    done = headcount("shadow", "--replay", recorded(ticks[:3], tmp_path / "short"), "--gpu", "h100-sxm")
    assert (done.code, "before the first window" in done.err) == (2, True)
