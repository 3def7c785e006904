"""How a workload is read, and what is changed of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeVar

from files.errors import HeadcountError
from files.names import shortened
from headcount.inputs.fields import Inputs, given
from headcount.inputs.reading.traffic import TRAFFIC_CHANGES, TrafficChange, TrafficChanges, read_traffic
from kvcache.shape.architecture import Architecture
from kvcache.shape.images import check_size
from simulator.engines.values import Duration, FilePath, Number, Switch, Text, TokenCount, WholeNumber
from simulator.engines.vllm.images import seen_by
from workloads.clients import Clients
from workloads.images import MOST_IMAGES, ImageUse
from workloads.load import load_workload, usual_think_time_s
from workloads.populations.population import Population
from workloads.tenants import Given, read_tenants
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source, TraceFile
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import Amount

Load = TypeVar("Load", Population, Trace)
_OF_TRACE: Final = {
    "trace_format": "format", "columns": "columns", "log_pattern": "log_pattern", "spread_ticks": "spread_ticks",
    "splice": "splice", "stretch": "stretch", "rate_scale": "rate_scale",
}  # fmt: skip
_FACTORS: Final = {"context_scale": "context", "output_scale": "output"}
_VALUES: Final = ("system_prompt", "turns", "patience", "client_timeout", "retries")
TRACE_FIELDS: Final = ("trace_block_size", *_OF_TRACE)
CHANGE_FIELDS: Final = ("system_prompt", "context_scale", "output_scale", "turns", "traffic")


def with_tenants(load: Load, given: Given | None) -> Load:
    """The users or the trace with these tenants; None: with its own."""
    if given is None:
        return load
    if isinstance(load, Population):
        return replace(load, clients=replace(load.clients, tenants=read_tenants(given)))
    return replace(load, clients=of_tenants(load.clients, given))


def with_images_of(population: Population, model: Architecture) -> Population:
    """The users with images that this model sees. Raises HeadcountError where it sees none, or no rule is known."""
    return population if population.images is None else replace(population, images=seen_by(population.images, model))


def read_size(text: str) -> tuple[int, int]:
    """Width and height in pixels, of `1280x960`. Raises HeadcountError for what is no size."""
    width, _, height = text.strip().lower().replace("×", "x").partition("x")
    try:
        sides = int(width), int(height)
    except ValueError:
        raise HeadcountError(f"'{shortened(text)}' is no image size; give width x height in pixels: 1280x960") from None
    check_size(*sides)
    return sides


def of_tenants(clients: Clients, given: Given) -> Clients:
    """Those of a load whose prompts are given as a whole."""
    tenants = read_tenants(given)
    if tenants.longest_system_prompt:
        raise HeadcountError("system_prompt_tokens of a tenant needs a population with users; leave it out")
    return replace(clients, tenants=tenants)


@dataclass(frozen=True, kw_only=True)
class TrafficInput(Inputs, heading="Traffic"):
    """Of a trace, how it is read and at which times; of every workload, what differs from it."""

    trace_block_size: int | None = given(
        TokenCount(), "Tokens per block id of a trace.", default_text="the format's own"
    )
    trace_format: str | None = given(Text(), "Trace format, by name.", default_text="found from its content")
    columns: str | Mapping[str, str] | None = given(
        Text("NAME=COLUMN,…"),
        "Columns of a CSV, Parquet or JSON Lines trace in an unknown format: prompt, output and, if present, time, "
        "session, think, priority, tenant. Example: "
        "time_ms=ts,prompt=usage.prompt_tokens,output=usage.completion_tokens.",
    )
    log_pattern: str | None = given(
        Text("REGEX"),
        "Regular expression (RE2 syntax) for the lines of a log. Groups are named like --columns: (?P<prompt>\\d+) …",
    )
    spread_ticks: bool = given(
        Switch(has_opposite=False),
        "Spread rounded times of a trace evenly over the rounding interval, such as 3 s.",
        default=False,
    )
    splice: Sequence[str | Path] = given(FilePath(), "Append another trace. May be repeated.", default=(), is_many=True)
    stretch: float | None = given(
        Number("a factor"), "Multiply all times of a trace, including think times. 2 means half the speed."
    )
    rate_scale: float | None = given(
        Number("a factor"), "Multiply the number of a trace's sessions in the same time, such as 2 or 0.5."
    )
    think_time_s: float | None = given(
        Duration(),
        "Time from the end of an answer to the next request.",
        default_text="the workload's",
        flag="think-time",
    )
    system_prompt: str | None = given(
        Text("TOKENS"), "Tokens of the system prompt that all conversations share.", default_text="the workload's"
    )
    context_scale: float | None = given(Number("a factor"), "Multiply the mean tokens of prompt and answer together.")
    output_scale: float | None = given(Number("a factor"), "Multiply the tokens of answers.")
    turns: str | None = given(Text("NUMBER"), "Mean turns of a conversation.", default_text="the workload's")
    traffic: TrafficChanges = given(
        TRAFFIC_CHANGES,
        "Changes to the workload: context=x2 (or 8K), output=600, turns=x2, think-time=30s, system-prompt=4K, "
        "long-prompts=10%:32K. Separate several by commas.",
    )
    images_per_request: int | None = given(
        WholeNumber(0, MOST_IMAGES), "Images at the beginning of each message.", default_text="the workload's"
    )
    images_per_conversation: int | None = given(
        WholeNumber(0, MOST_IMAGES),
        "Images at the beginning of each conversation's first message.",
        default_text="the workload's",
    )
    image_size: str | None = given(
        Text("WIDTHxHEIGHT"), "Pixels of each image, such as 1280x960.", default_text="the workload's"
    )
    patience: str | None = given(
        Text("TIME"), "Mean time that users wait for the first token before they give up.", default_text="forever"
    )
    client_timeout: str | None = given(
        Text("TIME"), "Time after which clients cancel an unfinished answer.", default_text="none"
    )
    retries: str | None = given(Text("N"), "Retries after a time-out.", default_text="2, openai-python's default")

    @property
    def changes(self) -> dict[str, Amount]:
        """What differs from the workload. Raises HeadcountError for what is no change, or is given twice."""
        factors = [(_FACTORS[name], getattr(self, name)) for name in _FACTORS]
        scaled = [(name, Amount(value=value, is_factor=True)) for name, value in factors if value is not None]
        values = [(name.replace("_", "-"), getattr(self, name)) for name in _VALUES]
        read = [TrafficChange().read(f"{name}={value}") for name, value in values if value is not None]
        if not scaled and not read:
            return read_traffic(self.traffic)
        return read_traffic((*read_traffic(self.traffic).items(), *scaled, *read))

    @property
    def unchanged(self) -> "TrafficInput":
        """How the workload is read, without changes of it."""
        return replace(
            self, traffic=None, context_scale=None, output_scale=None, system_prompt=None, turns=None, patience=None,
            client_timeout=None, retries=None,
        )  # fmt: skip

    def source(self, workload: Source | None) -> Source | None:
        """The workload's path with how it is to be read, where anything says so."""
        values = {name: getattr(self, name) for name in _OF_TRACE}
        how = {name: value for name, value in values.items() if not (value is None or value is False or value == ())}
        if not how:
            return workload
        if workload is None:
            raise HeadcountError(f"--{next(iter(how)).replace('_', '-')} needs --workload FILE")
        path = workload.path if isinstance(workload, TraceFile) else workload
        return TraceFile(path, **{_OF_TRACE[name]: value for name, value in how.items()})

    def named(self, workload: Source) -> str:
        """The workload with its changes, in a line."""
        return ", ".join([str(workload), *(f"{name} {amount}" for name, amount in self.changes.items())])

    def images(self, own: ImageUse | None) -> ImageUse | None:
        """A workload's images with what is asked for of them; None where there are none.

        Raises HeadcountError for images without a size, or a size without images.
        """
        asked = self.images_per_request, self.images_per_conversation
        given = (own.per_request, own.per_conversation) if own else (0, 0)
        request, conversation = (had if count is None else count for count, had in zip(asked, given, strict=True))
        size = self.image_size
        if not request and not conversation:
            if size is not None and own is None:
                raise HeadcountError(
                    "--image-size needs images; give --images-per-request or --images-per-conversation"
                )
            return None
        if size is not None:
            width, height = read_size(size)
        elif own is not None:
            width, height = own.width, own.height
        else:
            raise HeadcountError("images have no size; give --image-size, such as 1280x960")
        return ImageUse(width=width, height=height, per_request=request, per_conversation=conversation)

    def load(
        self, workload: Source, tenants: Given | None = None, *, model: Architecture | None = None
    ) -> tuple[Population | Trace, float]:
        """With the asked think time and traffic, and the mean think time; a trace takes the chat preset's.

        Images have tokens where the `model` that sees them is known.
        """
        found = load_workload(self.source(workload) or workload, trace_block_size=self.trace_block_size)
        if isinstance(found, Population):
            found = replace(found, images=self.images(found.images))
            found = found if model is None else with_images_of(found, model)
            found = found if self.think_time_s is None else found.with_think_time(self.think_time_s)
            found = with_tenants(changed(found, self.changes), tenants)
            return found, found.think_time_s.mean()
        if self.images(None) is not None:
            raise HeadcountError("images are simulated with users of a population, not with a trace; leave them out")
        mean_s = self.think_time_s if self.think_time_s is not None else usual_think_time_s()
        return with_tenants(changed_trace(found, self.changes), tenants), mean_s
