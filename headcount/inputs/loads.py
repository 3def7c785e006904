"""Which load a simulation was asked for, from the arguments that describe one."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

from files.errors import HeadcountError
from headcount.inputs.arrivals import read_arrivals
from headcount.inputs.traffic import TrafficChanges, read_traffic
from simulator.study.loads import Load as StudyLoad
from simulator.study.traffic import usual_context
from workloads.arrivals import POISSON, Arrivals, Bursty
from workloads.client_changes import changed_clients
from workloads.clients import Clients
from workloads.load import load_preset, load_workload
from workloads.populations.population import Population
from workloads.requests import RequestTable
from workloads.synthetic import closed_load, open_load, single_turn_users
from workloads.tenants import Given, read_tenants
from workloads.traces.resampled import sample_notes
from workloads.traces.trace import Trace
from workloads.traces.trace_file import Source
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import Amount

Load = TypeVar("Load", Population, Trace)

MAX_USERS = 1_000_000
_LENGTHS = ("input_len", "output_len", "length_spread")
_BELONGS = {  # what makes a load, what belongs to it
    "users": ("workload", "think_time", "traffic", *_LENGTHS),
    "concurrency": ("num_requests", "traffic", *_LENGTHS),
    "rate": ("arrivals", "burstiness", "num_requests", "traffic", *_LENGTHS),
    "workload": ("traffic", "num_requests"),
}


@dataclass(frozen=True, kw_only=True)
class AskedLoad:
    """The arguments of a load; raises HeadcountError for a combination that is none."""

    workload: Source | None = None
    think_time: float | None = None
    traffic: TrafficChanges = None
    trace_block_size: int | None = None
    users: int | None = None
    concurrency: int | None = None
    rate: float | None = None
    arrivals: str | Arrivals | None = None
    burstiness: float | None = None
    input_len: int | None = None
    output_len: int | None = None
    length_spread: float | None = None
    num_requests: int | None = None
    tenants: Given | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        load = next((name for name in _BELONGS if getattr(self, name) is not None), None)
        if load is None:
            raise HeadcountError("no load; give --workload FILE, --users N, --concurrency C or --rate R (see --help)")
        of_preset = load == "users" and self.workload is not None
        belongs = ("workload", "think_time", "traffic") if of_preset else _BELONGS[load]
        known = dict.fromkeys(name for key, others in _BELONGS.items() for name in (key, *others))
        foreign = [name for name in known if getattr(self, name) is not None and name not in (load, *belongs)]
        if foreign:
            given = " and ".join(map(_flag, foreign))
            beside = f"{_flag(load)}{' --workload' if of_preset else ''}"
            raise HeadcountError(f"{given} cannot go with {beside}; leave out one or the other")
        if self.users is not None and self.users > MAX_USERS:
            raise HeadcountError(
                f"--users {self.users:,}: at most {MAX_USERS:,} in one run; simulate a part of the fleet"
            )

    def population(self, max_model_len: int) -> Population:
        """What the users do."""
        if self.workload is None:
            lengths = self._lengths("--users")
            if self.think_time is None:
                raise HeadcountError("--users needs --think-time, or a preset with its own: --workload chat")
            prompt, answer = lengths["input_len"], lengths["output_len"]
            if prompt + answer > max_model_len:
                raise HeadcountError(
                    f"--input-len {prompt:,} with --output-len {answer:,} takes more than max_model_len "
                    f"{max_model_len:,}; raise --max-model-len or shorten them"
                )
            made = changed(single_turn_users(think_time_s=self.think_time, **lengths), read_traffic(self.traffic))
            return with_tenants(made, self.tenants)
        asked = AskedWorkload(
            workload=self.workload, think_time_s=self.think_time, traffic=self.traffic, tenants=self.tenants
        )
        workload, _ = replace(asked, trace_block_size=self.trace_block_size).load()
        if isinstance(workload, Trace):
            raise HeadcountError(f"--users cannot be set for a trace: '{self.workload}' brings its own arrivals")
        return workload

    def table(self) -> tuple[RequestTable, str, tuple[str, ...]]:
        """The requests of a load without users, what it is in words, and what a trace's reader tells of it."""
        if self.workload is not None:
            return self._trace_table(self.workload)
        if self.concurrency is not None:
            count = self.num_requests or 10 * self.concurrency
            lengths = self._lengths("--concurrency")
            table = closed_load(concurrency=self.concurrency, num_requests=count, seed=self.seed, **lengths)
            words = f"{self.concurrency:,} clients without think time, {count:,} requests"
            return self._with_clients(table, "--concurrency"), words, ()
        assert self.rate is not None, "a load that is neither users nor a trace nor clients is a rate"
        if self.num_requests is None:
            raise HeadcountError("--rate needs --num-requests: an open load has no end of its own")
        table = open_load(
            rate_per_s=self.rate,
            num_requests=self.num_requests,
            arrivals=self._arrivals(),
            seed=self.seed,
            **self._lengths("--rate"),
        )
        words = f"{self.rate:g} requests/s, {self.num_requests:,} requests"
        return self._with_clients(table, "--rate"), words, ()

    def _with_clients(self, table: RequestTable, load: str) -> RequestTable:
        """All that traffic can change of a load of fixed lengths."""
        clients = changed_clients(read_traffic(self.traffic), load)
        return (clients if self.tenants is None else of_tenants(clients, self.tenants)).applied(table, self.seed)

    def _arrivals(self) -> Arrivals:
        if self.arrivals is None:
            return POISSON if self.burstiness is None else Bursty(burstiness=self.burstiness)
        if self.burstiness is not None:
            raise HeadcountError("--burstiness and --arrivals both say how requests arrive; leave out one or the other")
        return read_arrivals(self.arrivals)

    def _trace_table(self, source: Source) -> tuple[RequestTable, str, tuple[str, ...]]:
        block, count = self.trace_block_size, self.num_requests
        workload = load_workload(source, trace_block_size=block, num_requests=count)
        if isinstance(workload, Population):
            raise HeadcountError(f"--workload {source} is a population; say how many with --users N")
        workload = with_tenants(changed_trace(workload, read_traffic(self.traffic)), self.tenants)
        table = workload.clients.applied(workload.table, self.seed)
        return table, f"{workload.name}, {workload.num_requests:,} requests replayed", workload.notes

    def _lengths(self, load: str) -> dict[str, Any]:
        if self.input_len is None or self.output_len is None:
            raise HeadcountError(f"{load} needs --input-len and --output-len, or a --workload")
        return {name: getattr(self, name) for name in _LENGTHS if getattr(self, name) is not None}


@dataclass(frozen=True, kw_only=True)
class AskedWorkload:
    """The arguments of a workload whose users are counted, apart from `users`."""

    workload: Source = "chat"
    think_time_s: float | None = None
    trace_block_size: int | None = None
    traffic: TrafficChanges = None
    """As `read_traffic` takes it."""
    tenants: Given | None = None

    @property
    def changes(self) -> dict[str, Amount]:
        return read_traffic(self.traffic)

    def __str__(self) -> str:
        return ", ".join([str(self.workload), *(f"{name} {amount}" for name, amount in self.changes.items())])

    def load(self) -> tuple[Population | Trace, float]:
        """With the asked think time and traffic, and the mean think time; a trace takes the chat preset's."""
        found = load_workload(self.workload, trace_block_size=self.trace_block_size)
        if isinstance(found, Population):
            found = found if self.think_time_s is None else found.with_think_time(self.think_time_s)
            found = with_tenants(changed(found, self.changes), self.tenants)
            return found, found.think_time_s.mean()
        mean_s = self.think_time_s if self.think_time_s is not None else load_preset("chat").think_time_s.mean()
        return with_tenants(changed_trace(found, self.changes), self.tenants), mean_s


def with_tenants(load: Load, given: Given | None) -> Load:
    """The users or the trace with these tenants; None: with its own."""
    if given is None:
        return load
    if isinstance(load, Population):
        return replace(load, clients=replace(load.clients, tenants=read_tenants(given)))
    return replace(load, clients=of_tenants(load.clients, given))


def of_tenants(clients: Clients, given: Given) -> Clients:
    """Those of a load whose prompts are given as a whole."""
    tenants = read_tenants(given)
    if tenants.longest_system_prompt:
        raise HeadcountError("tenants have system_prompt_tokens, which go with users of a population; leave them out")
    return replace(clients, tenants=tenants)


def trace_notes(workload: Population | Trace) -> tuple[str, ...]:
    """What a trace's reader left out or took for granted, and how little a short trace tells."""
    return (*workload.notes, *sample_notes(workload)) if isinstance(workload, Trace) else ()


def length_facts(workload: Population | Trace, met: StudyLoad | None) -> dict[str, Any]:
    """Facts of how long its requests usually are; `met` is the workload as the servers meet it."""
    return {} if met is None else {"usual_context": usual_context(met)}


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
