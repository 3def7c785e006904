"""What GPUs and an API cost, and which GPUs there are to choose from."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from files.errors import HeadcountError
from files.names import check_names
from headcount.inputs.fields import Inputs, given
from headcount.inputs.reading.deployments import ModelOnGPU
from kvcache.gpus.gpu import GPU, find_gpu, gpu_names
from simulator.engines.values import GPUCounts, Number, PriceList, Share, Text
from simulator.latency.gpu_constants import has_measured_times

if TYPE_CHECKING:
    from simulator.study.fleets.layouts import Offer

_USD: Final = Number("US dollars, such as 2.5", "USD")


@dataclass(frozen=True, kw_only=True)
class GPUPriceInput(Inputs, heading="Money"):
    """US dollars per GPU and hour."""

    price: float | Mapping[str, float] | None = given(
        PriceList(), "Price per GPU and hour: one for all, or GPU=USD,GPU=USD.", default_text="the catalog's"
    )

    def check(self, *gpus: str) -> None:
        """Raise HeadcountError for a bad price, or one of a GPU that is not asked about."""
        _prices(self.price, [find_gpu(name).name for name in gpus], "GPU of the question")

    def on(self, asked: ModelOnGPU) -> ModelOnGPU:
        """The same at the price of the GPU, the only one of the question. Raises HeadcountError as `check` does."""
        self.check(asked.gpu.name)
        return self.at(asked)

    def at(self, asked: ModelOnGPU) -> ModelOnGPU:
        """The same at the price of the GPU, if one is given; they are checked already."""
        usd = _prices(self.price, [asked.gpu.name]).get(asked.gpu.name)
        return asked if usd is None else replace(asked, gpu=asked.gpu.at_price(usd))


@dataclass(frozen=True, kw_only=True)
class PriceInput(GPUPriceInput):
    """US dollars per GPU and hour, and per million tokens of an API to compare with."""

    prices: str | None = given(
        Text(), "Choose among GPUs with a list price of this vendor alone, such as RunPod.", default_text="any"
    )
    reserved: Mapping[str, int] | None = given(
        GPUCounts(), "GPUs that are paid for all months, needed or not, such as h200-sxm=8.", default_text="none"
    )
    api_input_price: float | None = given(_USD, "Price of a million input tokens of an API to compare with.")
    api_output_price: float | None = given(_USD, "Price of a million output tokens of that API.")
    utilization: float | None = given(
        Share(), "Mean load as a share of the peak load.", default_text="29%, RAGPulse's week; 61% in its mean day"
    )


def names_of(given: str | Sequence[str] | None, what: str) -> tuple[str, ...]:
    """One name or several, each once. Raises HeadcountError for an empty list."""
    if given is None:
        return ()
    names = tuple(dict.fromkeys([given] if isinstance(given, str) else given))
    if not names or not all(name.strip() for name in names):
        raise HeadcountError(f"{what} has an empty name or none; give at least one, or leave it out")
    return names


def catalog_names(given: str | Sequence[str]) -> str | tuple[str, ...]:
    """GPUs under the catalog's names, of which each has several; one or several, as given."""
    if isinstance(given, str):
        return find_gpu(given).name
    return tuple(dict.fromkeys(find_gpu(name).name for name in given))


def read_offers(
    names: Sequence[str], price: float | Mapping[str, float] | None = None, vendor: str | None = None
) -> "tuple[Offer, ...]":
    """The GPUs with their prices; by default those with a price and step times that are not sold for desktops.

    Of one `vendor`, if it is given. Raises HeadcountError without a price.
    """
    from simulator.study.fleets.layouts import Offer  # noqa: PLC0415  what a search alone needs

    if vendor is not None:
        names = _sold_by(vendor, names)
    asked = {gpu.name: gpu for gpu in map(find_gpu, names)} or {
        gpu.name: gpu
        for gpu in map(find_gpu, gpu_names())
        if gpu.usd_per_hour and has_measured_times(gpu) and not gpu.is_for_consumers
    }
    given = _prices(price, asked, "GPU of the plan")
    return tuple(Offer(gpu=gpu, usd_per_hour=_price(gpu, given)) for gpu in asked.values())


def _prices(price: float | Mapping[str, float] | None, asked: Iterable[str], what: str = "") -> dict[str, float]:
    """By GPU, those that are given. Raises HeadcountError for a bad one or, if `what` says what, for another GPU."""
    if price is None:
        return {}
    if not isinstance(price, Mapping):
        _check("--price", price)
        return dict.fromkeys(asked, price)
    found = {find_gpu(name).name: usd for name, usd in price.items()}
    if what:
        check_names(found, set(asked), what)
    for name, usd in found.items():
        _check(f"the price of {name}", usd)
    return found


def _sold_by(vendor: str, names: Sequence[str]) -> list[str]:
    """Those of the names, or of the GPUs to choose from, whose list price is this vendor's."""
    offers = read_offers(names)
    found = [each.gpu.name for each in offers if each.gpu.price_vendor.lower() == vendor.lower()]
    if not found:
        vendors = sorted({each.gpu.price_vendor for each in offers})
        raise HeadcountError(f"no GPU has a list price of '{vendor}'; there are prices of {', '.join(vendors)}")
    return found


def _price(gpu: GPU, given: Mapping[str, float]) -> float:
    usd = given.get(gpu.name, gpu.usd_per_hour)
    if usd is None:
        raise HeadcountError(f"{gpu.name} has no price in the catalog; give --price {gpu.name}=USD per GPU and hour")
    return usd


def _check(what: str, usd: float) -> None:
    if not 0 < usd <= 1e6:
        raise HeadcountError(f"{what} is {usd:g} USD per GPU and hour; give one above 0, at most 1,000,000")
