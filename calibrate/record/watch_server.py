"""Recording a live server: only its /metrics are asked for, and its log read."""

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from calibrate.measured_run import WATCHED, MeasuredRun
from calibrate.readers.parsing.metrics_text import metric_samples
from calibrate.readers.parsing.server_metrics import PREFIX, START_TIME
from calibrate.readers.parsing.startup_log import logged_options
from calibrate.readers.vllm_iterations import LINE
from calibrate.record.recording_files import KIND_SERVER, RecordingFolder
from calibrate.record.server_series import SERIES_COLUMNS, ServerSeries
from files.errors import HeadcountError
from files.http import fetch_text, server_address
from files.outputs import write_whole
from files.reading import InputError, read_text, shown, text_lines

SNAPSHOTS, SERIES, ITERATIONS = "metrics.txt", "series.csv", "iterations.csv"
_UNIX_S = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")
_AT = "# headcount: at "
_END = "# headcount: end"
_LOST = "# headcount: no answer at "
ITERATION_COLUMNS = (
    "iteration", "context_requests", "context_tokens", "generation_requests", "generation_tokens", "elapsed_ms",
)  # fmt: skip


def watch_server(
    url: str,
    out: Path,
    *,
    seconds: float,
    interval_s: float,
    log: Path | None = None,
    watch: Callable[[str], None] = lambda _: None,
) -> MeasuredRun:
    """Ask a server for its metrics every `interval_s` for `seconds`; a second call adds to what is there.

    A server that stops answering is asked again at each interval, one that restarts is counted on. Raises ValueError
    where it does not answer at first, where it is no vLLM server, or where the log cannot be read.
    """
    address = metrics_address(url)
    if log is not None:
        with text_lines(log):  # told before the watch, not after it
            pass
    text = fetch_text(address)
    if not any(sample.name.startswith(PREFIX) for sample in metric_samples(text)):
        raise HeadcountError(f"{address} answers without vLLM's metrics; give the address of a vLLM server")
    with kept_open(out, address) as write:
        for unix_s, found in _snapshots(address, text, seconds, interval_s):
            write(unix_s, found)
            watch("no answer" if found is None else f"{len(found):,} bytes")
    series, lost = _series(out)
    _write_table(out / SERIES, SERIES_COLUMNS, [[row[name] for name in SERIES_COLUMNS] for row in series.rows])
    run = _run(out, series, lost)
    return run if log is None else _with_log(run, log)


@contextmanager
def kept_open(out: Path, address: str) -> Iterator[Callable[[float, str | None], None]]:
    """A server's recording, to which snapshots with their times are added; None: it did not answer then.

    Raises HeadcountError where the folder holds another server's.
    """
    _begin(RecordingFolder(out), address)
    with (out / SNAPSHOTS).open("a", encoding="utf-8") as file:
        file.write("\n" if file.tell() else "")  # what is there may have been cut off

        def write(unix_s: float, found: str | None) -> None:
            file.write(f"{_LOST}{unix_s:.3f}\n" if found is None else f"{_AT}{unix_s:.3f}\n{_kept(found)}{_END}\n")
            file.flush()

        yield write


def read_server_recording(out: Path) -> MeasuredRun:
    """What the snapshots of a folder say of the time between the first and the last.

    Raises HeadcountError where there is none.
    """
    return _run(out, *_series(out))


def _series(out: Path) -> tuple[ServerSeries, int]:
    """The complete snapshots, and how many are missing."""
    content = RecordingFolder(out).read(KIND_SERVER)
    if content is None:
        raise HeadcountError(f"{out} holds no recording of a server; make one with 'headcount calibrate record --url'")
    series, lost = ServerSeries(), 0
    for unix_s, text in read_snapshots(out / SNAPSHOTS):
        if text is None:
            lost += 1
            continue
        try:
            series.add(unix_s, metric_samples(text))
        except ValueError:
            lost += 1  # cut off, or another server's for a moment
    if not series.rows:
        raise HeadcountError(f"{out / SNAPSHOTS} holds no complete snapshot; record again")
    return series, lost


def _run(out: Path, series: ServerSeries, lost: int) -> MeasuredRun:
    excluded = {
        "requests for metrics without an answer": lost,
        "restarts; requests that ran then are lost": series.restarts,
        "samples whose value no server has": series.unsound,
    }
    aggregates = series.aggregates()
    return MeasuredRun(
        source=out,
        tool=WATCHED,
        options=dict(series.options),
        load=_load(aggregates),
        aggregates=aggregates,
        excluded={reason: count for reason, count in excluded.items() if count},
    )


def _load(found: Mapping[str, float]) -> dict[str, float]:
    """How many requests finished, how often, and their mean lengths."""
    load = {"num_requests": found["num_finished"]} if "num_finished" in found else {}
    if rate := found.get("requests_per_s"):
        tokens = (("input_len", "prompt_tokens_per_s"), ("output_len", "output_tokens_per_s"))
        load |= {"rate": rate, **{name: found[column] / rate for name, column in tokens if column in found}}
    return load


def _with_log(run: MeasuredRun, log: Path) -> MeasuredRun:
    """With the options that the log tells; its iteration details are written beside the snapshots."""
    rows = list(iteration_rows(log))
    _write_table(run.source / ITERATIONS, ITERATION_COLUMNS, rows)
    missing = {} if rows else {"log without iteration details (vLLM's --enable-logging-iteration-details)": 1}
    return replace(run, options={**run.options, **logged_options(log)}, excluded={**run.excluded, **missing})


def metrics_address(url: str) -> str:
    """A server's /metrics. Raises InputError where the address is none of HTTP."""
    parts = server_address(url)
    path = parts.path.rstrip("/")
    if path.endswith("/v1"):  # what OpenAI clients are given
        path = path.removesuffix("/v1")
    return parts._replace(path=path if path.endswith("/metrics") else f"{path}/metrics", query="", fragment="").geturl()


def read_snapshots(path: Path) -> Iterator[tuple[float, str | None]]:
    """Each snapshot with its time; None where there was no answer, or it is cut off."""
    unix_s, lines = None, list[str]()
    with text_lines(path) as file:
        for number, line in enumerate(file, start=1):
            if line.startswith((_AT, _LOST, _END)):
                if unix_s is not None:
                    yield unix_s, "".join(lines) if line.startswith(_END) else None
                unix_s, lines = None, []
            if line.startswith(_LOST):
                yield _time(path, number, line.removeprefix(_LOST)), None
            elif line.startswith(_AT):
                unix_s = _time(path, number, line.removeprefix(_AT))
            else:
                lines.append(line)
    if unix_s is not None:
        yield unix_s, None


def _time(path: Path, number: int, text: str) -> float:
    if _UNIX_S.fullmatch(text.strip()) is None:
        raise InputError(f"{shown(path)}, line {number}: '{shown(text.strip())}' is not a time in seconds since 1970")
    return float(text)


def iteration_rows(log: Path) -> Iterator[tuple[str, ...]]:
    """ITERATION_COLUMNS of each step that a server's log tells of."""
    for line in read_text(log, "result_bytes", damaged="replace").splitlines():
        if match := LINE.search(line):
            yield match.groups()[: len(ITERATION_COLUMNS)]


def _snapshots(address: str, first: str, seconds: float, interval_s: float) -> Iterator[tuple[float, str | None]]:
    """From the first answer on, at whole intervals after it."""
    begin_s = time.monotonic()
    yield time.time(), first
    for number in range(1, int(seconds / interval_s) + 1):
        time.sleep(max(begin_s + number * interval_s - time.monotonic(), 0.0))
        try:
            text: str | None = fetch_text(address, most_s=interval_s)
        except ValueError:
            text = None
        yield time.time(), text


def _begin(folder: RecordingFolder, address: str) -> None:
    folder.create(with_steps=False)
    content = folder.read(KIND_SERVER)
    if content is None:
        folder.write({"url": address, "begin_unix_s": time.time()}, KIND_SERVER)
    elif content["url"] != address:
        raise HeadcountError(
            f"{folder.path} holds a recording of {content['url']}, not of {address}; name a new folder"
        )


def _kept(text: str) -> str:
    """vLLM's own samples; the rest of a process's are left out."""
    lines = [line for line in text.splitlines() if line.startswith((PREFIX, START_TIME))]
    return "\n".join(lines) + "\n"


def _write_table(path: Path, columns: tuple[str, ...], rows: list[list[float]] | list[tuple[str, ...]]) -> None:
    lines = [",".join(columns), *(",".join(str(cell) for cell in row) for row in rows)]
    write_whole(path, "\n".join(lines) + "\n")
