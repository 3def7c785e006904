"""What the fleets of a plan cost over months of growth, in a sentence and a table."""

import math
from typing import Final

from headcount.inputs.growth import GrowthRate
from headcount.queries.growth import OfferCost, Stage
from headcount.queries.plan import PlanResult
from headcount.queries.plan_rows import about
from headcount.text.blocks import Block, Line, Table
from headcount.text.units import counted, whole_dollars

MOST_OFFERS: Final = 4  # whose cost over time is shown


def over_time_text(answer: PlanResult) -> str:
    """What the cheapest GPU costs over all months, and how much more the next; "" where growth is not followed."""
    served = [each for each in answer.over_time if each.usd is not None]
    if not answer.stages or not served:
        return ""
    best, growth = served[0], answer.people.grows
    grown = f", growing {growth.text}" if isinstance(growth, GrowthRate) else ""
    text = f"over {counted(sum(best.months), 'month')}{grown}: {_offer_text(best)}"
    others = [f"{_offer_text(each)}, ${whole_dollars((each.usd or 0) - (best.usd or 0))} more" for each in served[1:3]]
    return "; ".join([text, *others])


def _offer_text(offer: OfferCost) -> str:
    """Such as `h200-sxm, 8 of them reserved, $147,168`."""
    reserved = f", {offer.reserved:,} of them reserved" if offer.reserved else ""
    return f"{offer.kind}{reserved}, ${whole_dollars(offer.usd)}"


def over_time_table(answer: PlanResult) -> list[Block]:
    """GPUs of each kind in each period, those that are only paid in brackets, and what they cost in all."""
    offers = answer.over_time[:MOST_OFFERS]
    if not answer.stages or not offers:
        return []
    rows = []
    for number, stage in enumerate(answer.stages):
        first, last = stage.period.start_month + 1, stage.period.start_month + stage.period.months
        months = f"{first}–{last}" if last > first else f"{first}"
        rows.append((months, f"{math.ceil(stage.users):,}", *(_gpus_in(stage, offer, number) for offer in offers)))
    dollars = (f"${whole_dollars(offer.usd)}" if offer.usd is not None else "–" for offer in offers)
    rows.append(("in all", "", *dollars))
    columns = ("months", "users", *(f"{offer.kind}, GPUs" for offer in offers))
    meaning = "GPUs that are reserved but not needed are in brackets" if any(each.reserved for each in offers) else ""
    return [Table(columns=columns, rows=rows), *([Line(meaning)] if meaning else []), Line()]


def _gpus_in(stage: Stage, offer: OfferCost, number: int) -> str:
    row, needed = stage.fleet(offer.kind), offer.needed[number]
    if row is None or needed is None:
        return "–"
    idle = max(offer.reserved - needed, 0)
    return f"{about(row)}{needed:,}" + (f" (+{idle:,})" if idle else "")
