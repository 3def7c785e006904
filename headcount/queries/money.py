"""What GPUs cost: per month, user and token; beside an API."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.text.words import joined
from kvcache.gpus.gpu import GIVEN_PRICE, GPU

if TYPE_CHECKING:
    from headcount.inputs.people import MeanLoad

HOURS_PER_MONTH: Final = 730.0  # 8,760 hours of a year / 12
SECONDS_PER_MONTH: Final = HOURS_PER_MONTH * 3600
_MOST_USD: Final = 1e6  # per GPU and hour, or per million tokens


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Tokens of a load that so many users make at the peak, and the share of the peak load that there is on average."""

    users: float
    input_tokens_per_s: float
    output_tokens_per_s: float
    utilization: float = 1.0

    def __post_init__(self) -> None:
        for name in ("users", "input_tokens_per_s", "output_tokens_per_s"):
            _check(name, getattr(self, name), 0, 1e12)
        _check("utilization", self.utilization, 0, 1, above=True)

    @property
    def input_tokens_per_month(self) -> float:
        return self.input_tokens_per_s * self.utilization * SECONDS_PER_MONTH

    @property
    def output_tokens_per_month(self) -> float:
        return self.output_tokens_per_s * self.utilization * SECONDS_PER_MONTH


@dataclass(frozen=True, kw_only=True)
class Costs:
    """US dollars of GPUs that run all month; None where the price, or what it is divided by, is missing.

    Each price per million tokens carries the whole cost: of input tokens alone, of output tokens alone, of both.
    """

    usd_per_hour: float | None
    usd_per_month: float | None
    usd_per_asked_user_month: float | None
    """Of the users of the traffic; `usd_per_user_month` elsewhere is of those at 95 % confidence."""
    usd_per_million_input_tokens: float | None
    usd_per_million_output_tokens: float | None
    usd_per_million_tokens: float | None


def costs(gpus: int, usd_per_gpu_hour: float | None, traffic: Traffic) -> Costs:
    """What so many GPUs cost at a price: on-demand, reserved or your own. Raises ValueError for an impossible price."""
    month = usd_per_month(gpus, usd_per_gpu_hour)
    inputs, outputs = traffic.input_tokens_per_month, traffic.output_tokens_per_month
    return Costs(
        usd_per_hour=None if month is None else month / HOURS_PER_MONTH,
        usd_per_month=month,
        usd_per_asked_user_month=_per(month, traffic.users),
        usd_per_million_input_tokens=_per(month, inputs / 1e6),
        usd_per_million_output_tokens=_per(month, outputs / 1e6),
        usd_per_million_tokens=_per(month, (inputs + outputs) / 1e6),
    )


def usd_per_month(gpus: int, usd_per_gpu_hour: float | None) -> float | None:
    """Of GPUs that run 730 hours; None without a price. Raises HeadcountError for a price that is none."""
    if usd_per_gpu_hour is None:
        return None
    _check("the price per GPU and hour", usd_per_gpu_hour, 0, _MOST_USD, above=True)
    return gpus * usd_per_gpu_hour * HOURS_PER_MONTH


def usd_per_user_month(usd: float | None, users: float) -> float | None:
    """A month's cost per user; None without a price or without users."""
    return _per(usd, users)


def price_sources(priced: Iterable[tuple[GPU, float | None]]) -> tuple[str, ...]:
    """What an hour of each GPU costs and who says so, such as `NVIDIA L4 $0.44 by its list price`."""
    prices: dict[str, dict[str, None]] = {}
    for gpu, usd in priced:
        if usd is not None:
            source = gpu.source["usd_per_hour"] if usd == gpu.usd_per_hour else GIVEN_PRICE
            prices.setdefault(source, {})[f"{gpu.title} ${usd:,.2f}"] = None
    return tuple(f"{joined(list(found))} by {source}" for source, found in prices.items())


def price_lines(priced: Iterable[tuple[GPU, float | None]]) -> list[str]:
    """The same in one line below a table; none without a price."""
    listed = "; ".join(price_sources(priced))
    return [f"price of a GPU's hour: {listed}"] if listed else []


def vendors_of(gpus: Iterable[GPU]) -> tuple[str, str] | None:
    """The vendor of most list prices, and a sentence on those of others; None where all are of one vendor."""
    sold: dict[str, dict[str, None]] = {}
    for gpu in (each for each in gpus if each.price_vendor):
        sold.setdefault(gpu.price_vendor, {})[gpu.name] = None
    if len(sold) < 2:
        return None
    most = max(sold, key=lambda vendor: len(sold[vendor]))
    others = joined([f"{vendor} for {joined(list(names))}" for vendor, names in sold.items() if vendor != most])
    return most, f"list prices: {most}, but {others}"


@dataclass(frozen=True, kw_only=True)
class BreakEven:
    """Own GPUs beside an API at the same tokens, both per month."""

    own_usd_per_month: float
    api_usd_per_month: float
    input_tokens_per_month: float
    output_tokens_per_month: float
    """Of the given load; all input at one price, though an API may bill cached input less."""
    load_share: float | None
    """Of the given load, from which own GPUs are cheaper; above 1 they are not at this load; None if API is free."""
    users: float | None
    """The same in users, perhaps more than these GPUs serve; None if API is free."""

    @property
    def own_is_cheaper(self) -> bool:
        return self.own_usd_per_month < self.api_usd_per_month

    def to_json(self) -> Json:
        return asdict(self) | {"own_is_cheaper": self.own_is_cheaper}


def break_even(
    own_usd_per_month: float | None,
    traffic: Traffic,
    *,
    api_usd_per_million_input_tokens: float,
    api_usd_per_million_output_tokens: float,
) -> BreakEven | None:
    """From which load GPUs that cost the same at any load beat an API that bills tokens; None without a price."""
    _check("the API's price of input tokens", api_usd_per_million_input_tokens, 0, _MOST_USD)
    _check("the API's price of output tokens", api_usd_per_million_output_tokens, 0, _MOST_USD)
    if own_usd_per_month is None:
        return None
    api = (
        traffic.input_tokens_per_month * api_usd_per_million_input_tokens
        + traffic.output_tokens_per_month * api_usd_per_million_output_tokens
    ) / 1e6
    share = _per(own_usd_per_month, api)
    return BreakEven(
        own_usd_per_month=own_usd_per_month,
        api_usd_per_month=api,
        input_tokens_per_month=traffic.input_tokens_per_month,
        output_tokens_per_month=traffic.output_tokens_per_month,
        load_share=share,
        users=None if share is None else share * traffic.users,
    )


@dataclass(frozen=True, kw_only=True)
class Money:
    """Prices that a plan was asked with; US dollars per million tokens."""

    api_input_usd: float | None
    api_output_usd: float | None
    utilization: float
    utilization_of_mean_day: float | None = None
    """Where the utilization is assumed, the other one that RAGPulse gives."""

    @property
    def utilization_is_assumed(self) -> bool:
        return self.utilization_of_mean_day is not None

    def beside_api(self, usd_per_month: float | None, traffic: Traffic) -> BreakEven | None:
        """What an API would cost for that traffic; None without its prices."""
        if self.api_input_usd is None or self.api_output_usd is None:
            return None
        return break_even(
            usd_per_month,
            traffic,
            api_usd_per_million_input_tokens=self.api_input_usd,
            api_usd_per_million_output_tokens=self.api_output_usd,
        )


def money_of(api_input: float | None, api_output: float | None, utilization: float | None, mean: "MeanLoad") -> Money:
    """With the mean load that people's day or week has, where no utilization is given."""
    if (api_input is None) != (api_output is None):
        raise HeadcountError("an API bills input and output tokens; give both --api-input-price and --api-output-price")
    if utilization is not None and mean.is_given:
        raise HeadcountError(
            f"--utilization {utilization:g} cannot be given beside --daily-profile, which has a mean load of "
            f"{mean.value:.0%} of its peak; give one of the two"
        )
    found = Money(
        api_input_usd=api_input,
        api_output_usd=api_output,
        utilization=mean.value if utilization is None else utilization,
        utilization_of_mean_day=mean.of_mean_day if utilization is None else None,
    )
    nobody = Traffic(users=0, input_tokens_per_s=0, output_tokens_per_s=0, utilization=found.utilization)
    found.beside_api(None, nobody)  # checks the prices before any work
    return found


def _per(usd: float | None, count: float) -> float | None:
    return usd / count if usd is not None and count > 0 else None


def _check(name: str, value: float, least: float, most: float, *, above: bool = False) -> None:
    """Raise HeadcountError unless a number lies in a range; with `above` its lower end is not in it."""
    if not least <= value <= most or (above and value == least):
        raise HeadcountError(
            f"{name} is {value:g}; it must be {'above' if above else 'from'} {least:g}, at most {most:,.0f}"
        )
