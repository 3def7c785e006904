"""What is searched, and how well users are to be known."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from headcount.inputs.disaggregation import PoolSizesAsked
from headcount.inputs.fields import Inputs, given
from headcount.inputs.routing import BETTER_ROUTER, ROUTERS, router_field
from simulator.engines.values import COUNT, ROUTER, IntegerList, Listed, Number, Share, Switch, Text, WholeNumber
from simulator.fleet.pool_sizes import PoolChoices
from simulator.fleet.router import RouterFactory
from simulator.study.capacity import PRECISION

TRIALS: Final = 200
FINALISTS: Final = 6
MOST_COMPARED_USERS: Final = 20_000  # they are simulated on the GPUs of each layout, however few
SORTS: Final = ("cost", "users", "ttft", "tpot", "month")
_MORE_GAIN: Final = (
    "Suggest settings that serve more users. One setting is changed at a time and simulated with the same users."
)


def _precision(
    default: float,
    help: str = "Half-width of the simulation-noise interval, as a share of the users.",
    heading: str = "",
) -> Any:
    return given(Share(), help, heading=heading, default=default, default_text=f"{default:.0%}")


def _compared_precision() -> Any:
    return given(
        Share(),
        "Half-width of the simulation-noise interval, as a share of the users, of every row.",
        default_text=f"{PRECISION:.0%} of the first case or the recommended row; the others from few replications",
    )


def _replications(heading: str = "") -> Any:
    return given(
        WholeNumber(2, 10_000), "Independent runs per load.", heading=heading,
        default_text="as many as --precision takes",
    )  # fmt: skip


def _carbon_intensity(heading: str = "") -> Any:
    return given(
        Number("grams of CO2 per kWh, such as 400", "GRAMS"),
        "CO2 equivalent of a kWh of your grid: adds the energy and the carbon of the GPUs to the answer.",
        heading=heading,
    )


@dataclass(frozen=True, kw_only=True)
class CapacitySearch(Inputs, heading="Search"):
    """GPU counts to answer for, and how exactly."""

    gpus: Sequence[int] = given(IntegerList(), "GPU counts to evaluate.", default=(1, 2, 4, 8), default_text="1,2,4,8")
    precision: float = _precision(PRECISION)
    replications: int | None = _replications()
    hours_met: float | None = given(
        Share(),
        "Hourly SLO compliance: share of clock hours that must meet the SLO, such as 95%. Runs are one hour long.",
        default_text="the SLO holds over the whole run",
    )
    suggest: bool = given(Switch(has_opposite=False), _MORE_GAIN, default=False)
    carbon_intensity: float | None = _carbon_intensity()


@dataclass(frozen=True, kw_only=True)
class PoolsSearch(Inputs, heading="Search"):
    """How exactly the users of several pools are to be known, and the router before them."""

    precision: float = _precision(PRECISION)
    replications: int | None = _replications()
    router: str | RouterFactory | None = router_field(default_text=BETTER_ROUTER)


@dataclass(frozen=True, kw_only=True)
class HeterogeneousSearch(Inputs, heading="Search"):
    """What a search of pools of different GPUs looks for, behind a router that knows how fast each is."""

    precision: float = _precision(PRECISION)
    replications: int | None = _replications()
    router: str | RouterFactory | None = router_field(
        default_text="the better of shortest-expected-delay and session-affinity"
    )


@dataclass(frozen=True, kw_only=True)
class CompareSearch(Inputs, heading="Ranking"):
    """How layouts are ranked, and which of them are simulated."""

    users: int | None = given(
        WholeNumber(1, MOST_COMPARED_USERS),
        "Show what this many users get on each layout: the share within the SLO, TTFT and TPOT.",
        default_text="the users that it serves at 95 % confidence",
    )
    sort: str = given(Text(), "Rank by cost (per user), users, ttft, tpot or month (cost per month).", default="cost")
    simulate_all: bool = given(
        Switch(has_opposite=False),
        "Also simulate layouts that are estimated to be much worse.",
        default=False,
        flag="all",
    )
    precision: float | None = _compared_precision()
    replications: int | None = _replications()
    router: str | RouterFactory | Sequence[str | RouterFactory] | None = given(
        Listed(ROUTER),
        ROUTERS,
        heading="Scheduler",
        default_text=BETTER_ROUTER,
    )


@dataclass(frozen=True, kw_only=True)
class SweepInput(Inputs, heading="What if"):
    """What is varied over the base, and whose users are asked for."""

    vary: Mapping[str, object] | Sequence[str] | None = given(
        Text("NAME=VALUE,VALUE,…"),
        "What to vary: context, output, think-time, turns, system-prompt, retrieved, retrieved-in-history, "
        "drop-oldest or long-prompts; users, gpu, gpus, router, ttft, tpot, step-times; any engine option. "
        "May be repeated.",
        is_many=True,
    )
    tornado: bool = given(
        Switch(has_opposite=False),
        "Add a sensitivity analysis: each assumption 20 % lower and 20 % higher, largest effect first.",
        default=False,
    )
    users: int | None = given(COUNT, "Answer with the GPUs and the cost that this many users need.")
    gpus: int | None = given(COUNT, "GPUs to simulate.", default_text="the fewest that hold the model")
    precision: float | None = _compared_precision()
    replications: int | None = _replications()
    router: str | RouterFactory | None = router_field(default_text=BETTER_ROUTER)


@dataclass(frozen=True, kw_only=True)
class OptimizeSearch(Inputs, heading="Search"):
    """What is searched, and how many choices are estimated and simulated."""

    gpus: int = given(COUNT, "GPUs to serve on.", default=1)
    search: Mapping[str, object] | Sequence[str] | None = given(
        Text("NAME=VALUE,VALUE,…"),
        "Argument to search: any engine option, or router. May be repeated.",
        default_text="max-num-batched-tokens, max-num-seqs, kv-cache-dtype, quantization, gpu-memory-utilization and "
        "router; for SGLang chunked-prefill-size, max-running-requests, enable-mixed-chunk, kv-cache-dtype, "
        "quantization, schedule-policy, schedule-conservativeness and router; without those that you give",
        is_many=True,
    )
    trials: int = given(
        WholeNumber(1, 10_000), "Candidates to screen by an estimate, which takes milliseconds each.", default=TRIALS
    )
    finalists: int = given(WholeNumber(1, 100), "Candidates to simulate.", default=FINALISTS)
    router: str | RouterFactory | None = router_field(
        "Router to use for all candidates.", default_text="searched, starting with compare's"
    )


@dataclass(frozen=True, kw_only=True)
class PlanSearch(Inputs, heading="Choice"):
    """GPUs, formats, routers and pools to choose from."""

    gpu: str | Sequence[str] | None = given(
        Listed(Text()),
        "GPUs to choose from.",
        default_text="data-centre GPUs that have a price and measured runs or kernels",
    )
    quantization: str | Sequence[str] | None = given(
        Listed(Text()), "Weight formats to choose from.", default_text="the checkpoint's", short="q"
    )
    kv_cache_dtype: str | Sequence[str] | None = given(
        Listed(Text()), "KV-cache formats to choose from.", default_text="auto"
    )
    router: str | RouterFactory | None = router_field(default_text=BETTER_ROUTER)
    pools: PoolSizesAsked | None = given(
        PoolChoices(),
        "Also try disaggregated prefill/decode: prefill,decode. With tensor-parallel sizes to choose from: "
        "prefill=tp1,decode=tp1/tp2.",
        heading="Disaggregated prefill/decode",
    )
    precision: float = _precision(
        PRECISION, "Half-width of the simulation-noise interval of the best fleet's users.", "Search"
    )
    replications: int | None = _replications("Search")
    carbon_intensity: float | None = _carbon_intensity("Search")
