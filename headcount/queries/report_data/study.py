"""What a report is about: the deployment that leads a result, with loads and assumptions around it."""

from dataclasses import dataclass
from typing import Final

from headcount.queries.report_data.percentiles import PERCENTILES, percentiles_json, rounded
from headcount.queries.report_data.sensitivity import Sensitivity
from headcount.queries.report_data.timelines import timeline_json
from simulator.study.bottleneck import step_causes, what_binds
from simulator.study.candidate import RunContext, evaluator_of
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.points import Point
from simulator.study.running.simulations import Simulations
from simulator.study.served import users_point

SHARES: Final = (0.5, 0.8, 1.0, 1.2)  # of the load
MOST_LOADS: Final = 24  # of a curve
_MEANS: Final = (
    "requests_per_s", "output_tokens_per_s", "in_flight", "running", "waiting", "kv_usage", "prefix_hit_rate",
    "preemptions_per_request",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class Study:
    """A question with the row that leads its answer; `scale` is the fleet that is bought over the one simulated."""

    question: CapacityQuestion
    row: CapacityRow
    servers: int  # that are bought, spare ones too
    spare: int = 0
    users_needed: float | None = None
    scale: float = 1.0
    usd_per_gpu_hour: float | None = None
    at_load: Point | None = None
    """The fleet under its load, where the answer has simulated it."""

    @property
    def load_users(self) -> float:
        """The load that is looked at: the users that are asked for, else those at 95 % confidence, else the mean."""
        return self.users_needed or self.row.users_low or self.row.users


def study_figures(study: Study, simulations: Simulations | None) -> dict[str, object]:
    """Loads around the one that is looked at, and the effect of each assumption; empty where nobody is served."""
    if study.row.plan is None or not study.row.users:
        return {}
    question, row = study.question, study.row
    sensitivity = Sensitivity(
        question=question,
        row=row,
        users=row.users_low or row.users,
        load_users=study.load_users,
        simulations=simulations,
    )
    at_load = study.at_load or row.safe_point
    loads = loads_json(question, row, study.load_users, row.users * study.scale, at_load=at_load, where=simulations)
    return loads | sensitivity.to_json()


def loads_json(
    question: CapacityQuestion,
    row: CapacityRow,
    load_users: float,
    users: float,
    *,
    at_load: Point | None = None,
    where: Simulations | None = None,
) -> dict[str, object]:
    """Each share of the load; the whole of it as it is simulated already, `at_load`.

    `load_users` is the load in users, `users` what the row's fleet is said to serve.

    The two differ from the row's own where it stands for a larger fleet.
    """
    plan, point = row.plan, row.point
    if plan is None or point is None or not users:
        return {}
    found, timeline = [], {}
    with where or Simulations() as simulations:
        evaluator = evaluator_of(question, plan, row.replicas, RunContext(simulations=simulations))
        for share in SHARES:
            if share == 1.0 and at_load is not None:
                simulated = at_load
            else:
                size = point.size * share * load_users / users
                simulated = users_point(evaluator, size, is_confirmed=False, replications=question.replications)
            found.append({"share": share, "users": share * load_users, **_load_json(row, simulated)})
            if share == 1.0:
                timeline = timeline_json(simulated.replications[0], simulated.copies)
    return {"percentiles": list(PERCENTILES), "loads": found, "timeline": timeline}


def _load_json(row: CapacityRow, point: Point) -> dict[str, object]:
    assert row.plan is not None, "a row that serves users has a plan"
    return {
        **{name: rounded(point.mean(name)) for name in _MEANS},
        "host_hit_rate": None if point.host_hit_rate is None else rounded(point.host_hit_rate),
        "attainment": rounded(point.attainment.mean),
        "queue_grows": point.queue_grows,
        "ttft_s": percentiles_json(point.times("ttft_s")),
        "tpot_s": percentiles_json(point.times("tpot_s")),
        "binding": what_binds(row.plan, point),
        "step_causes": {name: rounded(share) for name, share in step_causes(row.plan, point).items()},
    }


def curve_json(row: CapacityRow) -> list[dict[str, object]]:
    """Every load that the search simulated, thinned to the MOST_LOADS nearest to the capacity."""
    pairs = sorted(zip(row.curve_users, row.curve, strict=True), key=lambda pair: abs(pair[0] - row.users))
    return [
        {
            "users": users,
            "mean": rounded(point.attainment.mean),
            "low": rounded(max(point.attainment.low, 0.0)),
            "high": rounded(min(point.attainment.high, 1.0)),
            "replications": len(point.replications),
            "queue_grows": point.queue_grows,
        }
        for users, point in sorted(pairs[:MOST_LOADS], key=lambda pair: pair[0])
    ]
