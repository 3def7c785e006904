"""Whose metrics are followed, over which windows of time."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from files.errors import HeadcountError
from headcount.inputs.fields import Inputs, given
from simulator.engines.values import Duration, FilePath, Text


@dataclass(frozen=True, kw_only=True)
class MetricsInput(Inputs, heading="Metrics"):
    """Servers, the Prometheus that scrapes them, or recordings of them; times in seconds."""

    url: Sequence[str] = given(
        Text(),
        "Address of a server, such as http://host:8000. Repeat it for each server.",
        default=(),
        default_text="none",
        is_many=True,
    )
    prometheus: str | None = given(
        Text(), "Address of the Prometheus that scrapes the servers, instead.", default_text="none"
    )
    select: str | None = given(
        Text(), "Label matchers of its series, such as 'namespace=\"prod\"'.", default_text="all of vLLM's"
    )
    since_s: float | None = given(
        Duration(),
        "Begin this long ago in Prometheus, which shows those hours at once.",
        default_text="now",
        flag="since",
    )
    replay: Sequence[str | Path] = given(
        FilePath(),
        "Folder of a recording, instead. Repeat it for each server.",
        default=(),
        default_text="none",
        is_many=True,
    )
    out: str | Path | None = given(
        FilePath(),
        "Keep the servers' metrics in this folder, for --replay and 'calibrate check'.",
        default_text="they are not kept",
    )
    every_s: float = given(
        Duration(), "Length of a window.", heading="Time", default=60.0, default_text="1min", flag="every"
    )
    interval_s: float = given(
        Duration(), "Time between readings.", heading="Time", default=15.0, default_text="15s", flag="interval"
    )
    duration_s: float | None = given(
        Duration(), "Stop after this time.", heading="Time", default_text="Ctrl-C stops it", flag="duration"
    )

    think_time_s: float | None = given(
        Duration(),
        "Time between an answer and the user's next request: the headroom is in users then.",
        heading="SLO",
        default_text="in requests/s",
        flag="think-time",
    )

    @property
    def source(self) -> str:
        """The field of the one source. Raises HeadcountError for none, several, or what the source does not take."""
        sources = [name for name in ("url", "prometheus", "replay") if getattr(self, name)]
        if len(sources) != 1:
            raise HeadcountError("give one source: --url of each server, --prometheus, or --replay of a recording")
        for name, source in (("select", "prometheus"), ("since_s", "prometheus"), ("out", "url"), ("duration_s", "")):
            is_live = name == "duration_s" and sources != ["replay"]
            if getattr(self, name) is not None and sources != [source] and not is_live:
                option = name.removesuffix("_s")
                raise HeadcountError(f"--{option} is not for --{sources[0]}; leave it out")
        if not 0 < self.interval_s <= self.every_s < math.inf:
            raise HeadcountError(
                f"--interval is {self.interval_s:g} s and --every {self.every_s:g} s; give times above 0, --interval "
                "at most --every"
            )
        if self.duration_s is not None and not self.every_s <= self.duration_s < math.inf:
            raise HeadcountError(
                f"--duration is {self.duration_s:g} s; give at least one window (--every {self.every_s:g} s)"
            )
        if self.since_s is not None and not 0 <= self.since_s < math.inf:
            raise HeadcountError(f"--since is {self.since_s:g} s; give a time from 0 on, such as 6h")
        return sources[0]
