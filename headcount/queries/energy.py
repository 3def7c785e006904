"""The power that GPUs draw, the energy of a month and of a token, and its carbon."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.queries.money import HOURS_PER_MONTH
from headcount.text.units import percent
from simulator.deployment import Deployment
from simulator.latency import model as causes
from simulator.latency.model import breakdown
from simulator.study.capacity_row import CapacityRow
from simulator.study.points import Point

IDLE_SHARE_OF_TDP: Final = 0.15
"""Where no idle power is published, by judgement: an idle H200 draws 74 W of 700 (conservemode.com/case-studies, read
2026-11), and a CUDA context adds 26 to 66 W (arXiv 2605.23918, 2026-04)."""
_DIRTIEST: Final = 2_000  # grams of CO2 per kWh; coal in the United States, 1,048 (eia.gov/tools/faqs, id 74, 2023)
ERROR: Final = "±25 % on H100 and B200, other GPUs not compared"
"""Of the power: the worst model that was left out of the fit; 90 % of runs are within −19 % to +24 %."""
_MEMORY, _COMPUTE, _REST = 0.84, 1.32, 0.48
SHARES_OF_TDP: Final[Mapping[str, float]] = MappingProxyType(
    dict.fromkeys((causes.WEIGHTS_READ, causes.KV_READ, causes.ACTIVATIONS), _MEMORY)
    | dict.fromkeys((causes.COMPUTE, causes.ADAPTERS, causes.ENCODER), _COMPUTE)
    | dict.fromkeys((causes.COMMUNICATION, causes.FIXED_OVERHEAD, causes.HOST), _REST)
)
"""What a GPU draws while a step waits for each of its causes, at most the TDP in sum. Fitted on the ML.ENERGY
Leaderboard v3.0 (ml.energy/leaderboard, read 2026-11): 498 runs of vLLM 0.11.1 on H100 and B200
(docs/measurements/energy.md)."""


@dataclass(frozen=True, kw_only=True)
class Energy:
    """An estimate for the GPU boards alone; servers and cooling come on top."""

    watts: float  # of all GPUs, on average
    share_of_tdp: float
    joules_per_output_token: float | None  # None where none is made
    idle_is_assumed: bool
    carbon_intensity: float | None = None  # of the grid, in grams of CO2 equivalent per kWh

    @property
    def kwh_per_month(self) -> float:
        """Under this load in all hours."""
        return self.watts * HOURS_PER_MONTH / 1000

    @property
    def co2_kg_per_month(self) -> float | None:
        return None if self.carbon_intensity is None else self.kwh_per_month * self.carbon_intensity / 1000

    @property
    def joules_text(self) -> str:
        """Joules per output token."""
        return "–" if self.joules_per_output_token is None else f"{self.joules_per_output_token:,.2f}"

    @property
    def text(self) -> str:
        """Power, energy and carbon in one line."""
        carbon = ""
        if self.co2_kg_per_month is not None and self.carbon_intensity is not None:
            carbon = f", {self.co2_kg_per_month:,.0f} kg of CO2 at {self.carbon_intensity:g} g/kWh"
        return (
            f"{self.watts / 1000:,.1f} kW ({percent(self.share_of_tdp)} of TDP), {self.joules_text} J per output "
            f"token, {self.kwh_per_month:,.0f} kWh a month{carbon}; GPU boards alone, {ERROR}"
        )

    def to_json(self) -> Json:
        return {
            "watts": self.watts,
            "share_of_tdp": self.share_of_tdp,
            "kwh_per_month": self.kwh_per_month,
            "joules_per_output_token": self.joules_per_output_token,
            "co2_kg_per_month": self.co2_kg_per_month,
            "carbon_intensity": self.carbon_intensity,
            "idle_is_assumed": self.idle_is_assumed,
        }


def check_carbon_intensity(carbon_intensity: float | None) -> None:
    """Raise HeadcountError for one that no grid has."""
    if carbon_intensity is not None and not 0 <= carbon_intensity <= _DIRTIEST:
        raise HeadcountError(
            f"carbon_intensity is {carbon_intensity:g} grams of CO2 per kWh; give from 0 to {_DIRTIEST:,}, such as 400"
        )


def energy_of(row: CapacityRow, carbon_intensity: float | None = None) -> Energy | None:
    """Of a row's GPUs under the users at 95 % confidence; None where nobody is served, or without a published TDP."""
    if row.plan is None or row.safe_point is None:
        return None
    return energy(row.plan, row.safe_point, row.gpus, carbon_intensity)


def energy(
    plan: Deployment, point: Point, gpus: int, carbon_intensity: float | None = None, *, scale: float = 1.0
) -> Energy | None:
    """Of so many GPUs under `scale` times a load that was simulated; None without a published TDP."""
    tdp = plan.gpu.tdp_watts
    if tdp is None:
        return None
    busy = min(scale * point.busy_engines * plan.gpus / plan.data_parallel_size, gpus)
    idle_watts = IDLE_SHARE_OF_TDP * tdp if plan.gpu.idle_watts is None else plan.gpu.idle_watts
    watts = busy * busy_share_of_tdp(plan, point) * tdp + (gpus - busy) * idle_watts
    tokens_per_s = scale * point.mean("output_tokens_per_s")
    return Energy(
        watts=watts,
        share_of_tdp=watts / (gpus * tdp),
        joules_per_output_token=watts / tokens_per_s if tokens_per_s else None,
        idle_is_assumed=plan.gpu.idle_watts is None,
        carbon_intensity=carbon_intensity,
    )


def energy_asked(found: Energy | None) -> list[tuple[str, str]]:
    """Its name and text, where a carbon intensity asks for it."""
    return [] if found is None or found.carbon_intensity is None else [("energy", found.text)]


def busy_share_of_tdp(plan: Deployment, point: Point) -> float:
    """What a GPU draws while a step runs, as a share of its TDP; none where nothing ran."""
    step = point.mean_step
    return 0.0 if step is None else share_of_tdp(breakdown(plan.latency, step))


def share_of_tdp(seconds: Mapping[str, float]) -> float:
    """The same of a step that takes so long for each of its causes."""
    total = sum(seconds.values())
    drawn = sum(SHARES_OF_TDP.get(cause, _REST) * value for cause, value in seconds.items())
    return min(drawn / total, 1.0) if total > 0 else 0.0
