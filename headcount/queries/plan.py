"""Which GPUs, and how many, do these people need, and what does it cost?"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cache, cached_property, partial

from files.documents import Json
from files.names import check_names
from headcount.diagnostics import find_diagnostics
from headcount.inputs.disaggregation import LinkInput, asked_choices
from headcount.inputs.engine import EngineInput
from headcount.inputs.growth import Period
from headcount.inputs.load import effects_on
from headcount.inputs.people import PeopleInput
from headcount.inputs.prices import PriceInput, names_of, read_offers
from headcount.inputs.question import question
from headcount.inputs.reading.deployments import engine_json
from headcount.inputs.run import RunInput
from headcount.inputs.search import PlanSearch
from headcount.inputs.slo import SLOInput
from headcount.inputs.traffic import TrafficInput
from headcount.queries.adapters import AdapterCost, adapter_cost, row_without_adapters
from headcount.queries.autoscaling.spare import SpareTried, try_spare
from headcount.queries.deployable import DeployableResult
from headcount.queries.energy import Energy, check_carbon_intensity, energy
from headcount.queries.growth import OfferCost, Stage, followed_stages, offer_costs
from headcount.queries.money import BreakEven, Money, Traffic, costs, money_of
from headcount.queries.plan_facts import facts, facts_of
from headcount.queries.plan_rows import (
    FleetRow,
    every_row,
    found_line,
    nearest_text,
    rows_of,
    server_text,
    sized_row,
)
from headcount.queries.report_data.demand import think_time_link, tokens_link
from headcount.queries.report_data.sensitivity import swings_disaggregated
from headcount.queries.report_data.study import Study
from headcount.queries.result import SCREENING, Progress, Verdict, Watch
from headcount.text.units import assumptions_json
from headcount.text.words import load_text
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model
from simulator.cancellations import Cancellations
from simulator.engines.engines import engine_args
from simulator.fleet.router import check_router
from simulator.study.candidate import RunContext
from simulator.study.capacity_row import CapacityRow
from simulator.study.fleets.layouts import (
    FleetQuestion,
    Layout,
    every_layout,
    variants,
)
from simulator.study.fleets.nearest import Nearest, in_fp8, nearest_fleets
from simulator.study.fleets.search import FleetSearch, LongerTTFTFleet, Tables, longer_ttft, search_fleets
from simulator.study.fleets.traffic import Request, mean_request
from simulator.study.points import Point
from simulator.study.running.simulations import Simulations
from workloads.demand import Demand
from workloads.effects import TrafficEffects
from workloads.traces.trace_file import Source


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PlanResult(DeployableResult):
    """The cheapest fleet for these people, with the others it was compared with."""

    kind = "plan"
    view = "plan"
    race: FleetSearch
    demand: Demand
    people: PeopleInput
    request: Request
    workload: str
    money: Money
    traffic: TrafficEffects | None = None
    carbon_intensity: float | None = None
    """Grams of CO2 equivalent per kWh of the grid; None: not asked."""
    nearest: tuple[Nearest, ...] = ()
    """Changes under which a fleet serves the users where none does, or for less."""
    without_adapters: CapacityRow | None = None
    """The cheapest fleet's GPUs for the model alone; None without LoRA adapters, or where it is scaled."""
    stages: tuple[Stage, ...] = ()
    """The fleets of each period of growth; () where it is not followed."""
    reserved: Mapping[str, int] = field(default_factory=dict)
    """GPUs that are paid in every period, by name."""
    longer_ttft: tuple[LongerTTFTFleet, ...] = ()
    """Fewer of the same servers under longer limits on TTFT; () where TTFT is not their bottleneck."""

    @property
    def best(self) -> FleetRow | None:
        """The cheapest fleet that serves the users; None where none does."""
        return self.fleets[0] if self.race.best is not None else None

    @property
    def adapters(self) -> AdapterCost | None:
        """What LoRA adapters cost the cheapest fleet; None without any."""
        best = self.race.best
        return None if best is None else adapter_cost(best.layout.plan, best.row.point, self.without_adapters)

    @property
    def cancelled(self) -> Cancellations | None:
        """Requests that clients of the cheapest fleet cancel; None where they wait for ever."""
        best = self.race.best
        return best.row.point.cancelled if best is not None and best.row.point else None

    @cached_property
    def over_time(self) -> tuple[OfferCost, ...]:
        """Of each kind of GPU over all periods, the cheapest first."""
        return offer_costs(self.stages, self.reserved)

    @property
    def energy(self) -> Energy | None:
        """What the cheapest fleet takes under the users to serve; None of two pools, or without a TDP."""
        best = self.race.best
        if best is None or best.served is None or best.layout.disaggregated is not None:
            return None
        grown = best.scale * best.each
        return energy(best.layout.plan, best.served, best.gpus, self.carbon_intensity, scale=grown)

    @cached_property
    def fleets(self) -> tuple[FleetRow, ...]:
        """The leading layout of each kind of GPU, cheapest first."""
        first = self.stages[0].fleets if self.stages else ()
        followed = {row.kind: row for row in first if row.evidence == "confirmed"}
        return tuple(followed.get(row.kind, row) for row in rows_of(self.race))

    @cached_property
    def layouts(self) -> tuple[FleetRow, ...]:
        """Every layout, those that were dropped last."""
        return tuple(every_row(self.race))

    @property
    def users_to_serve(self) -> float:
        """Of the demand, with growth and headroom."""
        return self.race.question.users

    @property
    def gpus(self) -> int | None:
        """How many to buy, spare servers included."""
        return self.best.gpus if self.best else None

    @property
    def usd_per_month(self) -> float | None:
        """Of the cheapest fleet."""
        return self.best.usd_per_month if self.best else None

    @cached_property
    def peak(self) -> Traffic | None:
        """The demand's traffic, as the cheapest fleet serves it."""
        if self.best is None or self.best.requests_per_s is None:
            return None
        per_s = self.best.requests_per_s / self.people.factor
        return Traffic(
            users=self.demand.users,
            input_tokens_per_s=per_s * self.request.input_tokens,
            output_tokens_per_s=per_s * self.request.output_tokens,
            utilization=self.money.utilization,
        )

    @cached_property
    def break_even(self) -> BreakEven | None:
        """Beside an API at the prices given; None without prices, or without a fleet."""
        return None if self.peak is None else self.money.beside_api(self.usd_per_month, self.peak)

    @property
    def break_even_utilization(self) -> float | None:
        """Mean load over the peak's from which own GPUs cost less, perhaps above 1; None without an API that bills."""
        found = self.break_even
        return None if found is None or found.load_share is None else found.load_share * self.money.utilization

    @cached_property
    def break_even_of_mean_day(self) -> BreakEven | None:
        """Beside the API at the other mean load, where it is assumed."""
        other = self.money.utilization_of_mean_day
        if self.peak is None or other is None:
            return None
        return self.money.beside_api(self.usd_per_month, replace(self.peak, utilization=other))

    @cached_property
    def spare_tried(self) -> SpareTried | None:
        """How the cheapest fleet comes through the failure of its spare servers, simulated; None where it was not."""
        return try_spare(self.race)

    def figures(self) -> Json:
        asked, args = self.race.question, self.race.question.variants[0]
        best = self.best
        return {
            "model": asked.architecture.name,
            "workload": self.workload,
            "think_time_s": asked.think_time_s,
            "traffic_effects": self.traffic.to_json() if self.traffic else None,
            "slo": vars(asked.slo),
            "vllm_version": args.vllm_version,
            **engine_json(args),
            "router": best.router if best else None,
            "seed": asked.seed,
            "architecture_assumptions": assumptions_json(asked.architecture.assumptions),
            "demand": self.demand.to_json(),
            "growth": self.people.growth_at_once,
            "stages": [
                {**asdict(each.period), "users_to_serve": each.users, "fleets": [row.to_json() for row in each.fleets]}
                for each in self.stages
            ],
            "over_time": [each.to_json() for each in self.over_time],
            "headroom": self.people.headroom,
            "spare_servers": asked.spare,
            "spare_tried": asdict(self.spare_tried) if self.spare_tried else None,
            "users_to_serve": self.users_to_serve,
            "meets_target": best is not None,
            "best": best.to_json() if best else None,
            **({} if self.cancelled is None else {"cancelled": self.cancelled.to_json()}),
            **({} if self.adapters is None else {"adapters": self.adapters.to_json()}),
            "fleets": self.rows(),
            "layouts": [row.to_json() for row in self.layouts],
            "nearest": [{"change": each.change, "fleet": sized_row(each.sized).to_json()} for each in self.nearest],
            "longer_ttft": [asdict(each) for each in self.longer_ttft],
            "costs": asdict(costs(best.gpus or 0, best.usd_per_gpu_hour, self.peak)) if best and self.peak else None,
            "energy": self.energy.to_json() if self.energy else None,
            "utilization": self.money.utilization,
            "utilization_assumed": self.money.utilization_is_assumed,
            "utilization_of_mean_day": self.money.utilization_of_mean_day,
            "break_even_utilization": self.break_even_utilization,
            "break_even": self.break_even.to_json() if self.break_even else None,
        }

    def rows(self) -> list[Json]:
        return [row.to_json() for row in self.fleets]

    @property
    def study(self) -> Study | None:
        race, best = self.race, self.race.best
        if best is None or best.layout.disaggregated is not None:
            return None
        return Study(
            question=race.question.capacity_of(best.layout, best.row.replicas),
            row=best.row,
            servers=best.servers + best.spare,
            spare=best.spare,
            users_needed=race.question.users,
            scale=best.scale * best.each,
            usd_per_gpu_hour=best.layout.offer.usd_per_hour,
            at_load=best.served,
        )

    def report_figures(self) -> Json:
        race, best = self.race, self.race.best
        disaggregated = best.layout.disaggregated if best is not None else None
        if best is None or disaggregated is None:
            return super().report_figures()
        sized = disaggregated.sized(best.prefill_servers, best.servers - best.prefill_servers)
        asked = race.question.capacity_of(best.layout, best.row.replicas)
        return swings_disaggregated(asked, sized)


@question
def plan(
    model: str,
    *,
    people: PeopleInput = PeopleInput(),
    workload: Source = "chat",
    traffic: TrafficInput = TrafficInput(),
    slo: SLOInput = SLOInput(),
    engine: EngineInput = EngineInput(),
    search: PlanSearch = PlanSearch(),
    link: LinkInput = LinkInput(),
    prices: PriceInput = PriceInput(),
    run: RunInput = RunInput(),
) -> PlanResult:
    """The cheapest fleet that serves these people within the SLO, and how much others would cost.

    Exactly one of `users`, `employees`, `requests_per_s`, `tokens_per_day` says how many people there are; the links
    from there to users are in docs/explanation/demand.md. `daily_profile` has requests by hour of a day or a week,
    `time_zones` the share of people by hours ahead of UTC (`+1=60%,-5=40%`). `growth` and `headroom` are shares on top;
    `spare` servers may fail, of two pools so many of each. Without a `router` it is least-outstanding, or
    session-affinity where that should cost clearly less. With `pools`, such as "prefill,decode" or {"prefill": [1],
    "decode": [1, 2]} with tensor-parallel sizes, disaggregated prefill/decode is tried too; `decider` says which
    prompts decode engines compute themselves. `gpu`, `quantization`, `kv_cache_dtype` are one name or several, `price`
    is US dollars per GPU and hour, of all or by name. Raises HeadcountError for a bad argument, RefusedError before
    anything is simulated where `strict` refuses a diagnostic.
    """
    if search.router is not None:
        check_router(search.router)
    check_carbon_intensity(search.carbon_intensity)
    run.check()
    people.check()
    progress = run.progress
    money = money_of(prices.api_input_price, prices.api_output_price, prices.utilization, people.mean_over_peak)
    args, architecture = engine_args(engine.arguments), load_model(model)
    offers = read_offers(names_of(search.gpu, "gpu"), prices.price, prices.prices)
    formats = names_of(search.quantization, "quantization"), names_of(search.kv_cache_dtype, "kv_cache_dtype")
    disaggregated = asked_choices(search.pools, link)
    limits = slo.found(workload)
    found, mean_s = traffic.load(workload, model=architecture)  # last of what is checked: a trace may be long
    asked = FleetQuestion(
        architecture=architecture,
        offers=offers,
        variants=tuple(variants(args, *formats)),
        workload=found,
        think_time_s=mean_s,
        users=1,  # until the chain is known
        spare=people.spare,
        disaggregated=disaggregated,
        slo=limits,
        router=search.router,
        precision=search.precision,
        replications=search.replications,
        seed=run.seed,
    )

    def estimated(layout: Layout, users: float, done: int, total: int) -> None:
        about = server_text(layout, users)
        progress(Progress(done=done, total=total, note=about, is_estimate=True, what=SCREENING))

    mean = cache(lambda: mean_request(asked, estimated))
    chain = people.chain(
        think_time=think_time_link(traffic, found, mean_s), tokens=partial(tokens_link, found), slo=limits, request=mean
    )
    request = mean()
    asked = replace(asked, users=chain.users * people.factor)
    periods = people.periods(is_followed=prices.reserved is not None)
    reserved = {find_gpu(name).name: count for name, count in (prices.reserved or {}).items()}
    check_names(reserved, {offer.gpu.name for offer in offers}, "GPU of the plan")
    if run.strict:
        searched, _ = every_layout(asked)
        find_diagnostics(facts(asked, [layout.plan for layout in searched]), strict=True)
    made = partial(
        PlanResult, demand=chain, people=people, request=request, workload=traffic.named(workload), money=money,
        carbon_intensity=search.carbon_intensity, reserved=reserved,
    )  # fmt: skip
    planning = _Planning(question=asked, made=made, periods=periods, reserved=reserved)
    with run.simulations() as simulations:
        return replace(planning.searched(progress, simulations), simulations=simulations)


@dataclass(frozen=True, kw_only=True)
class _Planning:
    """A question, and how an answer to it is made of the fleets that are found."""

    question: FleetQuestion
    made: Callable[..., PlanResult]
    periods: tuple[Period, ...] = ()
    reserved: Collection[str] = ()

    def answer(self, race: FleetSearch, nearest: tuple[Nearest, ...] = ()) -> PlanResult:
        load, best = self.question.workload, race.best
        plans = best.layout.plans if best else ()
        traffic = effects_on(load, [plan.engine for plan in plans]) if plans else None
        diagnostics = find_diagnostics(facts_of(race, traffic))
        return self.made(diagnostics=diagnostics, verdict=_verdict(race), race=race, traffic=traffic, nearest=nearest)

    def searched(self, progress: Watch, simulations: Simulations) -> PlanResult:
        """The cheapest fleet, with what would serve the users where none does, or for less."""
        tables = Tables(self.question, RunContext(simulations=simulations))
        race = self._race(progress, tables)
        if race.best is None:
            return self.answer(race, tuple(self._nearest(race, progress, simulations)))
        cheaper = in_fp8(self.question, race.best, simulations)
        answer = self.answer(race, (cheaper,) if cheaper else ())
        asked = self.question.capacity_on(race.best.layout.offer, race.best.layout.args)
        bare = row_without_adapters(asked, tables.how, race.best.row) if race.best.is_whole else None
        stages = tuple(followed_stages(self.periods, race, self.reserved, tables, progress))
        return replace(answer, longer_ttft=longer_ttft(race, tables), without_adapters=bare, stages=stages)

    def _race(self, progress: Watch, tables: Tables) -> FleetSearch:
        """The last state of the race, with progress told at each simulated load."""
        race: FleetSearch | None = None

        def watch(point: Point | None = None, unit: str = "") -> None:
            done = len(race.sized) if race else 0
            note = load_text(point, unit) if point is not None else ""
            progress(Progress(done=done, total=max(len(race.kinds) if race else 1, done + 1), note=note))

        tables.how.watcher = watch
        for found_race in search_fleets(self.question, tables=tables):
            found = found_line(found_race, race)
            race = found_race
            total = max(len(race.kinds), len(race.sized) + 1)
            progress(Progress(done=len(race.sized), total=total, found=found, so_far=self.answer(race)))
        assert race is not None, "a search yields its screening at least"
        return race

    def _nearest(self, race: FleetSearch, progress: Watch, simulations: Simulations) -> Iterator[Nearest]:
        """What would serve the users; progress is reported as it is found."""
        found = "no fleet serves these users; searching for a change that would"
        progress(Progress(done=0, total=1, found=found, so_far=self.answer(race)))
        for each in nearest_fleets(self.question, read_offers(()), simulations=simulations):
            progress(Progress(done=0, total=1, found=nearest_text(each)))
            yield each


def _verdict(race: FleetSearch) -> Verdict:
    best = race.best
    if best is None:
        return Verdict.TARGET_MISSED
    return Verdict.INCONCLUSIVE if best.is_confirmed and not best.row.is_precise else Verdict.DONE
