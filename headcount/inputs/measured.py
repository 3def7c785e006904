"""Measured runs, and what wins over what their files say of the server."""

import math
from dataclasses import dataclass, fields
from pathlib import Path

from files.errors import HeadcountError
from headcount.inputs.engine import EngineInput
from headcount.inputs.fields import Inputs, given
from headcount.inputs.load import LENGTH_SPREAD
from headcount.inputs.reading.deployments import resolve_model_and_gpu
from simulator.engines.engines import engine_of
from simulator.engines.values import Duration, FilePath, Number, Text, TokenCount, WholeNumber


@dataclass(frozen=True, kw_only=True)
class MeasuredInput(Inputs, heading="Measurements"):
    """How files of measurements are read; the deployment, where they do not say it."""

    format_name: str | None = given(
        Text(names_code=True),
        "Format of all files: a name, or module:Name.",
        default_text="found from their content",
        flag="format",
    )
    length_spread: float | None = given(
        LENGTH_SPREAD,
        "Spread of lengths, for files with mean lengths only. 0.8: lengths are drawn around the mean, the shortest "
        "0.8 × the longest.",
        default_text="1",
    )
    warmup_s: float | None = given(
        Duration(),
        "Leave out requests sent within this time after the first, when the server is cold.",
        default_text="0s",
        flag="warmup",
    )
    until_s: float | None = given(
        Duration(),
        "Compare or fit only requests sent within this time after the first. Later ones are still served, as load.",
        default_text="the end of the run",
        flag="until",
    )
    prefix_hit_rate: float | None = given(
        Number("a share from 0 to 1"),
        "Share of prompt tokens that the server found in its prefix cache, by its log or counters, for files that do "
        "not tell it.",
        default_text="as the files tell",
    )
    sent: str | None = given(
        Text(may_be_path=True),
        "The trace that was sent: its prompts share what they share there.",
        default_text="none",
        flag="workload",
    )
    trace_block_size: int | None = given(
        TokenCount(), "Tokens per block id of that trace.", default_text="the format's own"
    )
    before: str | Path | None = given(
        FilePath(), "The /metrics snapshot from before the run that the one file ends.", default_text="none"
    )
    rate: float | None = given(
        Number("requests per second, or inf"),
        "Requests per second that were sent, for files that do not tell their load, such as /metrics.",
        default_text="as the files tell",
    )
    concurrency: int | None = given(
        WholeNumber(1),
        "Requests that were kept in flight, for files that do not tell their load.",
        default_text="as the files tell",
    )
    duration_s: float | None = given(
        Duration(),
        "Time that the requests came in, such as between both snapshots: gives the rate.",
        default_text="as the files tell",
        flag="duration",
    )
    model: str | None = given(
        Text(may_be_path=True),
        "Model name, if the files do not give it.",
        heading="Deployment",
        default_text="the files'",
    )
    gpu: str | None = given(
        Text(),
        "GPU name, such as h100-sxm, if the files do not give it.",
        heading="Deployment",
        default_text="the files'",
    )

    @property
    def snapshot_before(self) -> Path | None:
        return None if self.before is None else Path(self.before)

    @property
    def load(self) -> dict[str, float]:
        """The load that was given, by its field. Raises HeadcountError where it is more than one, or out of range."""
        given = {"rate": self.rate, "concurrency": self.concurrency, "duration_s": self.duration_s}
        found = {name: value for name, value in given.items() if value is not None}
        if len(found) > 1:
            raise HeadcountError("--rate, --concurrency and --duration each tell the load; give one")
        if self.rate is not None and not self.rate > 0:
            raise HeadcountError(f"--rate is {self.rate:g}; give requests per second, above 0")
        if self.concurrency is not None and self.concurrency < 1:
            raise HeadcountError(f"--concurrency is {self.concurrency}; give 1 or more")
        if self.duration_s is not None and not 0 < self.duration_s < math.inf:
            raise HeadcountError(f"--duration is {self.duration_s:g} s; give a time above 0 s")
        return found

    def with_engine(self, engine: EngineInput) -> dict[str, object]:
        """What wins over the files. Raises HeadcountError for what is out of range."""
        spread, warmup_s, log = self.length_spread, self.warmup_s, engine.startup_log
        own: dict[str, object] = {"model": self.model, "gpu": self.gpu, "length_spread": spread, "warmup_s": warmup_s}
        own["until_s"] = self.until_s
        if spread is not None and not 0 < spread <= 1:
            raise HeadcountError(f"--length-spread is {spread:g}; it must be above 0, at most 1 (1 = exact lengths)")
        if self.prefix_hit_rate is not None and not 0 <= self.prefix_hit_rate <= 1:
            raise HeadcountError(f"--prefix-hit-rate is {self.prefix_hit_rate:g}; it must be from 0 to 1")
        if self.prefix_hit_rate is not None and self.sent is not None:
            raise HeadcountError("--prefix-hit-rate and --workload both tell what is found in the cache; give one")
        if self.trace_block_size is not None and self.sent is None:
            raise HeadcountError("--trace-block-size is for the trace that was sent; give it with --workload")
        own |= {"prefix_hit_rate": self.prefix_hit_rate, "workload": self.sent}
        own["trace_block_size"] = self.trace_block_size
        if warmup_s is not None and not 0 <= warmup_s < math.inf:
            raise HeadcountError(f"--warmup is {warmup_s:g} s; it must be 0 s or longer")
        if self.until_s is not None and not (warmup_s or 0.0) < self.until_s < math.inf:
            raise HeadcountError(f"--until is {self.until_s:g} s; it must be longer than --warmup and 0 s")
        arguments = {name: value for name, value in engine.arguments.items() if value is not None}
        found = arguments | {name: value for name, value in own.items() if value is not None}
        if log is not None:
            for name in ("model", "gpu"):
                if own[name] is None:
                    raise HeadcountError(
                        f"--startup-log needs --{name}, which its KV cache is checked against; give both"
                    )
            asked = resolve_model_and_gpu(str(self.model), str(self.gpu), arguments, log)
            found["engine"] = engine_of(asked.args)
            sizes = {"num_gpu_blocks_override", "max_total_num_tokens"} & {item.name for item in fields(asked.args)}
            found |= {name: getattr(asked.args, name) for name in sizes}
        return found
