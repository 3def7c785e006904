"""Where a fleet's metrics come from: its servers, a Prometheus, or recordings. Nothing is ever sent to a server."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import msgspec

from calibrate.readers.parsing import server_metrics as metrics
from calibrate.readers.parsing.metrics_text import Sample, metric_samples
from calibrate.record.watch_server import SNAPSHOTS, kept_open, metrics_address, read_snapshots
from calibrate.shadow.windows import JUDGED, LENGTHS, Tick
from files.errors import HeadcountError
from files.http import fetch_text, server_address
from files.names import shortened
from files.reading import InputError

MOST_POINTS: Final = 100  # of a series, in one answer of Prometheus
SERVER_LABELS: Final = ("pod", "instance")  # of a series: whose it is
NAMES: Final = sorted(
    {name for names in (*metrics.GAUGES.values(), *metrics.COUNTERS.values()) for name in names}
    | {
        f"{name}_{part}"
        for kind in (*JUDGED, *LENGTHS)
        for name in metrics.HISTOGRAMS[kind]
        for part in ("sum", "count")
    }
    | {f"{name}_bucket" for kind in LENGTHS for name in metrics.HISTOGRAMS[kind]}
    | {metrics.CACHE_CONFIG}
)
"""The series that windows are made from."""


def has_metrics(samples: Sequence[Sample]) -> bool:
    """Whether a vLLM server gave them."""
    return any(sample.name.startswith(metrics.PREFIX) for sample in samples)


def ask_servers(
    urls: Sequence[str],
    *,
    interval_s: float,
    until_s: float = math.inf,
    folders: Sequence[Path] = (),
    lost: Callable[[str], None] = lambda _: None,
) -> Iterator[Tick]:
    """Ask each server at each interval, up to the time `until_s`; what it answers is added to its folder.

    Raises HeadcountError where one does not answer at first, or not with vLLM's metrics. Later, one that does not
    answer is asked again.
    """
    addresses = [metrics_address(url) for url in urls]
    if len(set(addresses)) < len(addresses):
        raise HeadcountError("a server is given twice; give each --url once")
    first = {address: fetch_text(address) for address in addresses}
    for address, answer in first.items():
        if not has_metrics(list(metric_samples(answer))):
            raise HeadcountError(f"{address} answers without vLLM's metrics; give the address of a vLLM server")
    with ExitStack() as stack:
        write = {a: stack.enter_context(kept_open(folder, a)) for a, folder in zip(addresses, folders, strict=False)}
        begin_s, number = time.monotonic(), 0
        while True:
            now_s, found = time.time(), dict[str, Sequence[Sample]]()
            for address in addresses:
                text = first.pop(address, None) or _answer(address, interval_s, lost)
                if address in write:
                    write[address](now_s, text)
                samples = [] if text is None else list(metric_samples(text))
                if has_metrics(samples):
                    found[address] = samples
            yield Tick(unix_s=now_s, servers=found)
            number += 1
            if now_s + interval_s > until_s:
                return
            time.sleep(max(begin_s + number * interval_s - time.monotonic(), 0.0))


def _answer(address: str, most_s: float, lost: Callable[[str], None]) -> str | None:
    try:
        return fetch_text(address, most_s=most_s)
    except InputError as error:
        lost(str(error))
        return None


def read_recordings(folders: Sequence[Path], interval_s: float) -> Iterator[Tick]:
    """The snapshots of one folder for each server; those within half an interval are of one time."""
    found: list[tuple[float, str, Sequence[Sample]]] = []
    for folder in folders:
        if not (folder / SNAPSHOTS).is_file():
            raise HeadcountError(
                f"{folder} holds no recording of a server; make one with 'headcount shadow --url … --out FOLDER', or "
                "'headcount calibrate record --url'"
            )
        for unix_s, text in read_snapshots(folder / SNAPSHOTS):
            snapshot = [] if text is None else list(metric_samples(text))
            if has_metrics(snapshot):
                found.append((unix_s, str(folder), snapshot))
    if not found:
        raise HeadcountError(f"{folders[0] / SNAPSHOTS} holds no complete snapshot; record again")
    together: dict[str, Sequence[Sample]] = {}
    begin_s = found[0][0]
    for unix_s, server, samples in sorted(found, key=lambda each: each[0]):
        if together and (server in together or unix_s - begin_s > interval_s / 2):
            yield Tick(unix_s=begin_s, servers=together)
            together = {}
        begin_s = begin_s if together else unix_s
        together[server] = samples
    yield Tick(unix_s=begin_s, servers=together)


class _Series(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, str]]


class _Matrix(msgspec.Struct):
    result: list[_Series]


class _Answer(msgspec.Struct):
    status: str
    data: _Matrix | None = None
    error: str = ""


def ask_prometheus(
    url: str,
    *,
    select: str = "",
    interval_s: float,
    from_s: float,
    until_s: float = math.inf,
    lost: Callable[[str], None] = lambda _: None,
) -> Iterator[Tick]:
    """What a Prometheus has of vLLM's series from a time on, then as time goes on, up to `until_s`.

    `select` are further label matchers, such as `namespace="prod"`. Raises HeadcountError where it does not answer as
    Prometheus does, or at first has none of vLLM's series.
    """
    at_s, has_any = from_s, False
    while at_s <= until_s:
        now_s = time.time()
        passed_s = math.floor((now_s - at_s) / interval_s) * interval_s
        end_s = min(at_s + min(passed_s, (MOST_POINTS - 1) * interval_s), until_s)
        if end_s < at_s:
            time.sleep(min(at_s + interval_s - now_s, interval_s))
            continue
        ticks = _asked(url, select, interval_s, at_s, end_s, lost=lost if has_any else None)
        if not any(tick.servers for tick in ticks) and not has_any and end_s + interval_s > min(now_s, until_s):
            which = f" with {{{select}}}" if select else ""
            raise HeadcountError(
                f"{url} has none of vLLM's series{which} of that time; is it the Prometheus that scrapes it?"
            )
        has_any = has_any or any(tick.servers for tick in ticks)
        yield from ticks
        at_s = end_s + interval_s


def _asked(
    url: str, select: str, interval_s: float, from_s: float, to_s: float, *, lost: Callable[[str], None] | None
) -> list[Tick]:
    matchers = ", ".join(part for part in (f'__name__=~"{"|".join(NAMES)}"', select) if part)
    parts = server_address(url)
    asked = {"query": f"{{{matchers}}}", "start": f"{from_s:.3f}", "end": f"{to_s:.3f}", "step": f"{interval_s:g}"}
    path = parts.path.rstrip("/") + "/api/v1/query_range"
    address = parts._replace(path=path, query=urlencode(asked), fragment="").geturl()
    try:
        text = fetch_text(address)
    except InputError as error:
        message = str(error).replace(shortened(address, 300), url)
        if lost is None:
            raise HeadcountError(message) from None
        lost(message)
        return []
    try:
        answer = msgspec.json.decode(text, type=_Answer, strict=False)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HeadcountError(
            f"{url} does not answer as a Prometheus does; give its address, such as http://prometheus:9090"
        ) from None
    if answer.data is None:
        raise HeadcountError(f"{url} refuses the question: {answer.error[:200]}; check --select")
    return _ticks(answer.data.result)


def _ticks(found: Sequence[_Series]) -> list[Tick]:
    ticks: dict[float, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for series in found:
        labels = dict(series.metric)
        name = labels.pop("__name__", "")
        server = next((labels[label] for label in SERVER_LABELS if label in labels), "server")
        kept = tuple(sorted(labels.items()))
        for at_s, value in series.values:
            try:
                ticks[at_s][server].append(Sample(name, kept, float(value)))
            except ValueError:
                continue
    return [Tick(unix_s=at_s, servers=dict(ticks[at_s])) for at_s in sorted(ticks)]
