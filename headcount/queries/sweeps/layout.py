"""One way to serve: what it is, what it costs, how many users it serves, or why it serves nobody."""

from dataclasses import dataclass, replace

from files.documents import Json
from headcount.inputs.reading.deployments import ModelOnGPU
from headcount.inputs.reading.variations import OWN_FORMATS, Choice, choice_text
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.queries.report_data.disaggregation import disaggregated_text
from headcount.queries.report_data.study import Study
from headcount.text.capacity import no_capacity_reason
from headcount.text.words import found_text, hits_text, layout_text
from simulator.study.candidate import Level
from simulator.study.capacity_row import CapacityRow
from simulator.study.points import Point
from simulator.study.served import latency_summary, served_json
from simulator.study.statistics import Interval
from simulator.study.variations.ratios import inverse, times, users_ratio
from simulator.study.variations.variation import Variation
from workloads.effects import TrafficEffects


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """A combination of what was listed; without a row it was only screened, without a look it cannot be asked for."""

    choice: Choice
    gpus: int
    asked: ModelOnGPU | None = None
    looked: Variation | None = None
    row: CapacityRow | None = None
    refusal: str | None = None
    traffic: TrafficEffects | None = None
    other_names: tuple[str, ...] = ()  # that come to the same settings
    under: Point | None = None
    """What the users get that were asked for; None where none were, or it is not simulated."""

    def with_row(self, row: CapacityRow) -> "Layout":
        """The same once it is simulated: with the parallel layout and the router of the row."""
        looked = self.looked
        if looked is not None and row.plan is not None and looked.disaggregated is None:
            looked = replace(looked, plan=row.plan, tp=row.tp, question=replace(looked.question, router=row.router))
        return replace(self, row=row, looked=looked)

    @property
    def name(self) -> str:
        return choice_text({**self.choice, **self._own_formats})

    @property
    def how(self) -> str:
        """Its name without the GPUs; "" where nothing else is chosen."""
        chosen = {**self.choice, **self._own_formats}
        chosen = {name: value for name, value in chosen.items() if name not in ("gpu", "gpus")}
        return choice_text(chosen) if chosen else ""

    @property
    def _own_formats(self) -> Choice:
        """What the checkpoint's own formats are called, where they are chosen."""
        plan = self.looked.plan if self.looked else None
        if plan is None:
            return {}
        own = {"quantization": plan.budget.quantization, "kv_cache_dtype": plan.budget.kv_cache_dtype}
        return {
            name: plan.architecture.dtype if value in OWN_FORMATS else value
            for name, value in own.items()
            if name in self.choice and self.choice[name] in OWN_FORMATS
        }

    @property
    def reason(self) -> str | None:
        """Why it serves nobody, or none at 95 % confidence."""
        if self.refusal is not None or self.looked is None:
            return self.refusal
        if self.row is None:
            return self.looked.reason
        return no_capacity_reason(self.row) if self.row.users and not self.row.users_low else self.row.reason

    @property
    def found_line(self) -> str:
        """Told as soon as it is simulated."""
        if self.row is None or not self.row.users:
            return f"{self.name}: {self.reason or 'no users'}"
        return f"{self.name}: {found_text(self.row.users_low, self.row.users, self.row.users_high)}"

    @property
    def is_screened_only(self) -> bool:
        return self.row is None and self.looked is not None and self.looked.plan is not None

    @property
    def is_router_given(self) -> bool:
        """Whether somebody asked for a router."""
        table = self.looked.table if self.looked else None
        return table is not None and table.question.router is not None

    @property
    def is_coarse(self) -> bool:
        """Whether it is known from few replications alone."""
        return self.row is not None and self.row.evidence == Level.COARSE.word

    @property
    def about(self) -> str:
        """The sign before figures that few replications told."""
        return "≈ " if self.is_coarse else ""

    @property
    def users(self) -> int:
        """Users at 95 % confidence; about how many where it was only screened."""
        if self.row is not None:
            return self.row.users_low
        return self.looked.users if self.looked else 0

    @property
    def gpu_name(self) -> str:
        """ "" where it cannot be asked for."""
        return self.asked.gpu.name if self.asked else ""

    @property
    def usd_per_month(self) -> float | None:
        return usd_per_month(self.gpus, self.asked.gpu.usd_per_hour) if self.asked else None

    @property
    def usd_per_user_month(self) -> float | None:
        return usd_per_user_month(self.usd_per_month, self.users)

    @property
    def study(self) -> Study | None:
        """What a report shows of it; None where it was not simulated."""
        if self.row is None or self.looked is None or self.looked.disaggregated is not None:
            return None
        price = self.asked.gpu.usd_per_hour if self.asked else None
        return Study(question=self.looked.question, row=self.row, servers=self.row.replicas, usd_per_gpu_hour=price)

    @property
    def num_servers(self) -> int:
        """0 where nothing runs."""
        plan = self.looked.plan if self.looked else None
        if self.looked is not None and self.looked.disaggregated is not None:
            return sum(self.looked.disaggregated.counts)
        return self.gpus // plan.gpus if plan else 0

    @property
    def layout(self) -> str:
        """Such as `4 × TP2`."""
        return self.layout_of(self.num_servers)

    def layout_of(self, servers: int) -> str:
        """The same of another number of servers."""
        plan = self.looked.plan if self.looked else None
        if plan is None:
            return "–"
        if self.looked is not None and self.looked.disaggregated is not None:
            return disaggregated_text(self.looked.disaggregated)
        return layout_text(servers, plan.tensor_parallel_size, plan.data_parallel_size, plan.pipeline_parallel_size)

    def p95_s(self, name: str) -> float | None:
        """Of `ttft_s` or `tpot_s`, with the users that were asked for, or else at 95 % confidence, or the mean."""
        point = self.under or ((self.row.safe_point or self.row.point) if self.row else None)
        return latency_summary(point, name)["p95"] if point else None

    @property
    def hits(self) -> str:
        """Prompt tokens found in GPU and host memory, at the mean number of users."""
        point = self.row.point if self.row else None
        return "–" if point is None else hits_text(point.mean("prefix_hit_rate"), point.host_hit_rate)

    def is_same_as(self, other: "Layout") -> bool:
        """Whether it is one with another: its values are, or come to, the same."""
        if self.choice == other.choice or self.looked is None or other.looked is None:
            return self.choice == other.choice
        return self.looked.is_same_as(other.looked)

    def users_over(self, other: "Layout") -> Interval | None:
        """Users at 95 % confidence over another one's, paired."""
        if self.row is None or other.row is None:
            return None
        return users_ratio(self.row, other.row)

    def cost_over(self, other: "Layout") -> Interval | None:
        """Dollars per user at 95 % confidence over another one's, paired."""
        users, mine, others = self.users_over(other), self.usd_per_month, other.usd_per_month
        return None if users is None or mine is None or not others else times(inverse(users), mine / others)

    def to_json(self, best: "Layout | None") -> Json:
        """The choice, the row's own keys, the money, the ratios to the best."""
        found = self.row.to_json() if self.row else {}
        users, cost = (self.users_over(best), self.cost_over(best)) if best else (None, None)
        return {
            **{
                name: value if isinstance(value, int | str | None) else str(value)
                for name, value in self.choice.items()
            },
            "gpu": self.gpu_name or None,
            "gpus": self.gpus,
            "layout": self.layout,
            "other_names": list(self.other_names),
            **found,
            "reason": self.reason,
            "is_screened_only": self.is_screened_only,
            "users_estimated": self.looked.users if self.looked else None,
            "usd_per_month": self.usd_per_month,
            "usd_per_user_month": self.usd_per_user_month,
            "users_over_best": vars(users) if users else None,
            "usd_per_user_over_best": vars(cost) if cost else None,
            "at_users_to_serve": {**served_json(self.under), "attainment": self.under.attainment.mean}
            if self.under
            else None,
            "traffic_effects": self.traffic.to_json() if self.traffic else None,
        }
