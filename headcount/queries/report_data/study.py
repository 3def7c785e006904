"""What a report is about: the deployment that leads a result, and what is simulated and estimated around it."""

from dataclasses import dataclass

from headcount.queries.report_data.loads import loads_json
from headcount.queries.report_data.sensitivity import Sensitivity
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_table import CapacityRow
from simulator.study.running.simulations import Simulations


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

    @property
    def load_users(self) -> float:
        """The load that is looked at: the users that are asked for, else those at 95 % confidence, else the mean."""
        return self.users_needed or self.row.users_low or self.row.users


def study_figures(study: Study, simulations: Simulations | None) -> dict[str, object]:
    """Loads around the one that is looked at, and the effect of each assumption; empty where nobody is served."""
    if study.row.plan is None or not study.row.users:
        return {}
    question, row = study.question, study.row
    sensitivity = Sensitivity(question=question, row=row, users=row.users_low or row.users, load_users=study.load_users)
    loads = loads_json(question, row, study.load_users, row.users * study.scale, simulations)
    return loads | sensitivity.to_json()
