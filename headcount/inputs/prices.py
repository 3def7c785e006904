"""What GPUs and an API cost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from headcount.inputs.fields import Inputs, given
from simulator.engines.values import Number, PriceList, Share

_USD: Final = Number("US dollars, such as 2.5", "USD")


@dataclass(frozen=True, kw_only=True)
class PriceInput(Inputs, heading="Money"):
    """US dollars per GPU and hour, and per million tokens of an API to compare with."""

    price: float | Mapping[str, float] | None = given(
        PriceList(), "Price per GPU and hour: one for all, or GPU=USD,GPU=USD.", default_text="the catalog's"
    )
    api_input_price: float | None = given(_USD, "Price of a million input tokens of an API to compare with.")
    api_output_price: float | None = given(_USD, "Price of a million output tokens of that API.")
    utilization: float | None = given(
        Share(), "Mean load as a share of the peak load.", default_text="29%, from the peak-hour share"
    )
