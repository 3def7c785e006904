"""One load that is simulated: a trace, users, clients without think time, or arrivals at a rate."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from files.errors import HeadcountError
from headcount.inputs.fields import Inputs, given
from headcount.inputs.reading.traffic import ArrivalProcess, StageRates, read_arrivals, usage
from headcount.inputs.traffic import TrafficInput, of_tenants, with_tenants
from kvcache.shape.architecture import Architecture
from simulator.engines.values import COUNT, Duration, Number, Text, TokenCount, WholeNumber
from simulator.engines.vllm.images import seen_by
from simulator.fleet.fleet import AnyEngine
from simulator.study.loads import Load as StudyLoad
from simulator.study.traffic import usual_context
from workloads.arrivals import POISSON, PROCESSES, Arrivals, Bursty
from workloads.client_changes import changed_clients
from workloads.effects import TrafficEffects, served_requests, traffic_effects
from workloads.images import ImageUse, with_images
from workloads.load import load_workload
from workloads.populations.population import Population
from workloads.requests import RequestTable
from workloads.stages import SharedPrefixes, Stages
from workloads.synthetic import closed_load, open_load, single_turn_users, staged_load
from workloads.tenants import Given
from workloads.traces.resampled import sample_notes
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source
from workloads.traffic import changed, changed_trace

MAX_USERS: Final = 1_000_000
STAGE_LENGTH_S: Final = 60.0
LENGTH_SPREAD: Final = Number("1 for exact lengths, 0.8 for 80 % to 100 % of them")
_LENGTHS: Final = ("input_len", "output_len", "length_spread")
_PREFIXES: Final = ("prefix_len", "num_prefixes", "prompts_per_prefix")
_BELONGS: Final = {  # what makes a load, what belongs to it
    "users": ("workload", "think_time", "traffic", *_LENGTHS),
    "concurrency": ("num_requests", "traffic", *_LENGTHS, *_PREFIXES),
    "rate": ("arrivals", "burstiness", "num_requests", "traffic", *_LENGTHS, *_PREFIXES),
    "stages": ("stage_length", "arrivals", "burstiness", "traffic", *_LENGTHS, *_PREFIXES),
    "workload": ("traffic", "num_requests"),
}


@dataclass(frozen=True, kw_only=True)
class LoadInput(Inputs, heading="Traffic"):
    """One of `workload`, `users`, `concurrency`, `rate` and `stages` makes the load; a preset needs `users`, too."""

    workload: Source | None = given(
        Text(may_be_path=True), "A trace to replay. With --users: a preset or a population's TOML file."
    )
    users: int | None = given(WholeNumber(1), "Closed-loop users; needs --think-time or a preset.")
    concurrency: int | None = given(WholeNumber(1), "Clients without think time, all starting at 0 s.")
    rate: float | None = given(Number("requests per second, or inf"), "Open-loop arrival rate.")
    stages: tuple[float, ...] | None = given(
        StageRates(), "Open-loop arrival rates, one stage after the other: 5,10,20. The answer has a row for each."
    )
    stage_length: float | None = given(Duration(), "Length of each stage.", default_text="1min")
    arrivals: str | Arrivals | None = given(
        ArrivalProcess(),
        f"Arrival process of open requests: {', '.join(map(usage, PROCESSES))}.",
        default_text="poisson",
    )
    burstiness: float | None = given(
        Number("1 for Poisson, less for bursts"), "Burstiness of open arrivals, as in vLLM.", default_text="1, Poisson"
    )
    input_len: int | None = given(TokenCount(), "Prompt tokens.")
    output_len: int | None = given(TokenCount(), "Output tokens.")
    length_spread: float | None = given(
        LENGTH_SPREAD, "Spread of lengths. 0.8: uniform from 0.8 to 1 × the given lengths.", default_text="1"
    )
    prefix_len: int | None = given(
        TokenCount(), "Tokens of a shared prefix before each prompt, in addition to --input-len."
    )
    num_prefixes: int | None = given(COUNT, "Different prefixes, drawn at random.", default_text="1")
    prompts_per_prefix: int | None = given(
        COUNT, "Different prompts behind each prefix, drawn at random.", default_text="each prompt is new"
    )
    num_requests: int | None = given(COUNT, "Number of requests.", default_text="10 × concurrency, or the whole file")
    runs: int = given(
        WholeNumber(1, 1000),
        "Number of runs, each with its own seed. More runs narrow the interval of the p99.",
        default=1,
    )


@dataclass(frozen=True, kw_only=True)
class AskedLoad:
    """A load with all that decides its requests; raises HeadcountError for a combination that is none."""

    load: LoadInput
    traffic: TrafficInput = TrafficInput()
    tenants: Given | None = None
    seed: int = 0
    model: Architecture | None = None  # that images are seen by

    def __post_init__(self) -> None:
        load = next((name for name in _BELONGS if self._given(name) is not None), None)
        if load is None:
            raise HeadcountError(
                "no load; give --workload FILE, --users N, --concurrency C, --rate R or --stages R,R,R (see --help)"
            )
        of_preset = load == "users" and self.load.workload is not None
        belongs = ("workload", "think_time", "traffic") if of_preset else _BELONGS[load]
        known = dict.fromkeys(name for key, others in _BELONGS.items() for name in (key, *others))
        foreign = [name for name in known if self._given(name) is not None and name not in (load, *belongs)]
        if foreign:
            names = " and ".join(map(_flag, foreign))
            beside = f"{_flag(load)}{' --workload' if of_preset else ''}"
            raise HeadcountError(f"{names} cannot go with {beside}; leave out one or the other")
        if self.load.users is not None and self.load.users > MAX_USERS:
            raise HeadcountError(
                f"--users {self.load.users:,}: at most {MAX_USERS:,} in one run; simulate a part of the fleet"
            )
        self.traffic.source(self.load.workload)  # how a trace is read goes with one

    def _given(self, name: str) -> object:
        if name == "think_time":
            return self.traffic.think_time_s
        if name == "traffic":
            return self.traffic.changes or None
        found: object = getattr(self.load, name)
        return found

    @property
    def workload(self) -> Source | None:
        return self.traffic.source(self.load.workload)

    @property
    def users(self) -> int | None:
        return self.load.users

    def population(self, max_model_len: int) -> Population:
        """What the users do."""
        if self.workload is None:
            lengths, think_time_s = self._lengths("--users", "think_time"), self.traffic.think_time_s
            assert think_time_s is not None, "a load of users without a workload was refused without it"
            prompt, answer = lengths["input_len"], lengths["output_len"]
            if (images := self._images) is not None:
                prompt += images.message_tokens + images.opening_tokens
            if prompt + answer > max_model_len:
                given = "a prompt of" if images else "--input-len"
                raise HeadcountError(
                    f"{given} {prompt:,} with --output-len {answer:,} takes more than max_model_len "
                    f"{max_model_len:,}; raise --max-model-len or shorten them"
                )
            users = replace(single_turn_users(think_time_s=think_time_s, **lengths), images=self._images)
            return with_tenants(changed(users, self.traffic.changes), self.tenants)
        workload, _ = self.traffic.load(self.workload, self.tenants, model=self.model)
        if isinstance(workload, Trace):
            raise HeadcountError(f"--users cannot be set for a trace: '{self.workload}' brings its own arrivals")
        return workload

    def served(self, requests: RequestTable, engines: Sequence[AnyEngine]) -> tuple[RequestTable, TrafficEffects]:
        """Those of a trace that every engine takes; lengths that were given are not cut."""
        most = min(engine.max_prompt_tokens for engine in engines)
        traffic = traffic_effects(requests, _longest_context(engines))
        return requests if self.workload is None else served_requests(requests, most), traffic

    def table(self) -> tuple[RequestTable, str, tuple[str, ...]]:
        """The requests of a load without users, what it is in words, and what a trace's reader tells of it."""
        load = self.load
        if self.workload is not None:
            return self._trace_table(self.workload)
        if load.concurrency is not None:
            count = load.num_requests or 10 * load.concurrency
            lengths = self._lengths("--concurrency")
            table = closed_load(concurrency=load.concurrency, num_requests=count, seed=self.seed, **lengths)
            words = f"{load.concurrency:,} clients without think time, {count:,} requests"
            return self._with_clients(table, "--concurrency"), words, ()
        if (stages := self.stages) is not None:
            lengths = self._lengths("--stages")
            table = staged_load(stages, arrivals=self._arrivals(), seed=self.seed, **lengths)
            rates = ", ".join(f"{rate:g}" for rate in stages.rates_per_s)
            words = f"{rates} requests/s for {stages.length_s:g} s each, {table.num_requests:,} requests"
            return self._with_clients(table, "--stages"), words, ()
        assert load.rate is not None, "a load without users, trace, clients or stages has a rate"
        lengths = self._lengths("--rate", "num_requests")  # an open load does not end by itself
        assert load.num_requests is not None, "an open load was refused without it"
        table = open_load(
            rate_per_s=load.rate,
            num_requests=load.num_requests,
            arrivals=self._arrivals(),
            seed=self.seed,
            **lengths,
        )
        words = f"{load.rate:g} requests/s, {load.num_requests:,} requests"
        return self._with_clients(table, "--rate"), words, ()

    @property
    def stages(self) -> Stages | None:
        """None where the load has no stages."""
        if self.load.stages is None:
            return None
        given = self.load.stage_length
        return Stages(self.load.stages, STAGE_LENGTH_S if given is None else given)

    def _with_prefixes(self, table: RequestTable) -> RequestTable:
        load = self.load
        if load.prefix_len is None:
            for name in _PREFIXES:
                if getattr(load, name) is not None:
                    raise HeadcountError(f"{_flag(name)} needs --prefix-len, the tokens of each prefix")
            return table
        return SharedPrefixes(load.prefix_len, load.num_prefixes or 1, load.prompts_per_prefix).before(table, self.seed)

    def _with_clients(self, table: RequestTable, load: str) -> RequestTable:
        """A load of fixed lengths with its prefixes, and all that traffic can change of it."""
        clients = changed_clients(self.traffic.changes, load)
        whose = clients if self.tenants is None else of_tenants(clients, self.tenants)
        found = self._with_prefixes(table)
        if (images := self._images) is not None:
            found = with_images(found, images, self.load.prefix_len or 0)
        return whose.applied(found, self.seed)

    @property
    def _images(self) -> ImageUse | None:
        """Those of requests whose lengths are given, as the model sees them."""
        images = self.traffic.images(None)
        assert images is None or self.model is not None, "a question about images has a model"
        return None if images is None or self.model is None else seen_by(images, self.model)

    def _arrivals(self) -> Arrivals:
        arrivals, burstiness = self.load.arrivals, self.load.burstiness
        if arrivals is None:
            return POISSON if burstiness is None else Bursty(burstiness=burstiness)
        if burstiness is not None:
            raise HeadcountError("--burstiness and --arrivals both say how requests arrive; leave out one or the other")
        return read_arrivals(arrivals)

    def _trace_table(self, source: Source) -> tuple[RequestTable, str, tuple[str, ...]]:
        if self.traffic.images(None) is not None:
            raise HeadcountError(
                "images are simulated with users or with given lengths, not with a trace; leave them out"
            )
        block, count = self.traffic.trace_block_size, self.load.num_requests
        workload = load_workload(source, trace_block_size=block, num_requests=count)
        if isinstance(workload, Population):
            raise HeadcountError(f"--workload {source} is a population; say how many with --users N")
        workload = with_tenants(changed_trace(workload, self.traffic.changes), self.tenants)
        table = workload.clients.applied(workload.table, self.seed)
        return table, f"{workload.name}, {workload.num_requests:,} requests replayed", workload.notes

    def _lengths(self, load: str, *more: str) -> dict[str, Any]:
        """The lengths of a load that brings none. Raises HeadcountError for all that it lacks, `more` among it."""
        missing = [name for name in ("input_len", "output_len", *more) if self._given(name) is None]
        if missing:
            instead = ", or a preset: --workload chat" if "think_time" in more else ""
            raise HeadcountError(f"{load} needs {' and '.join(map(_flag, missing))}{instead}")
        return {name: value for name in _LENGTHS if (value := getattr(self.load, name)) is not None}


def trace_notes(workload: Population | Trace) -> tuple[str, ...]:
    """What a trace's reader left out or took for granted, and how little a short trace tells."""
    return (*workload.notes, *sample_notes(workload)) if isinstance(workload, Trace) else ()


def effects_on(workload: Population | Trace, engines: Sequence[AnyEngine]) -> TrafficEffects:
    """What engines, all of which must take a request, make of a load."""
    most = min(engine.max_model_len for engine in engines)
    return load_effects(workload, _longest_context(engines) if isinstance(workload, Trace) else most)


@lru_cache(maxsize=64)
def load_effects(workload: Population | Trace, max_model_len: int) -> TrafficEffects:
    """What a longest context makes of a load, in tokens."""
    return traffic_effects(workload.table if isinstance(workload, Trace) else workload, max_model_len)


def _longest_context(engines: Sequence[AnyEngine]) -> int:
    """In tokens, of a request whose prompt every engine takes."""
    return min(min(engine.max_model_len, engine.max_prompt_tokens + 1) for engine in engines)


def length_facts(met: StudyLoad | None) -> dict[str, Any]:
    """Facts of how long its requests usually are; `met` is the workload as the servers meet it."""
    return {} if met is None else {"usual_context": usual_context(met)}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
