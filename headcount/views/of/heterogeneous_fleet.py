"""What a heterogeneous fleet serves, in words."""

import math
from collections.abc import Iterator
from functools import partial

from files.documents import Json, ReadJson
from headcount.queries.autoscaling.pooled import NOBODY
from headcount.queries.heterogeneous_fleet import FleetResult
from headcount.queries.money import usd_per_month, usd_per_user_month
from headcount.text.blocks import Block, Column, Line, table_of
from headcount.text.capacity import row_layout
from headcount.text.units import change, dollars, milliseconds, percent, seconds, whole_dollars
from headcount.text.words import BEST, PER_SAFE_MEANING, PER_SAFE_USER, SAFE, joined, model_title
from headcount.views.of.pooled import headline, page, pooled_details
from headcount.views.report_data.assumptions import gpu_rows, of_terms
from headcount.views.summary.summary import (
    Options,
    Priced,
    Summary,
    if_all_come,
    money_figures,
    price_figures,
    servers_text,
)
from simulator.study.fleets.heterogeneous_fleet import PoolAlone

MOST_DOWN = 2  # failures that the summary tells

PoolRow = tuple[PoolAlone, ReadJson]
COLUMNS = (
    Column[PoolRow]("pool", lambda row: f"{row[1]['gpus']} × {row[1]['gpu']}", is_text=True),
    Column[PoolRow]("layout", lambda row: row_layout(row[0].row)),
    Column[PoolRow]("users alone", lambda row: f"{row[1]['users_alone']:,}"),
    Column[PoolRow]("of requests", lambda row: f"{row[1]['share']:.0%}"),
    Column[PoolRow]("miss TTFT", lambda row: percent(round(row[1]["ttft_misses"], 3))),
    Column[PoolRow]("miss TPOT", lambda row: percent(round(row[1]["tpot_misses"], 3))),
    Column[PoolRow]("TTFT p95", lambda row: seconds(row[1]["ttft_s"]["p95"])),
    Column[PoolRow]("TPOT p95", lambda row: milliseconds(row[1]["tpot_s"]["p95"])),
    Column[PoolRow]("prefix hits", lambda row: f"{row[1]['prefix_hit_rate']:.0%}"),
    Column[PoolRow]("$/hour", lambda row: dollars(row[1]["usd_per_hour"])),
)


def head(answer: FleetResult) -> list[Block]:
    return headline(answer, _gpus(answer), f"behind the router {answer.router}")


def body(answer: FleetResult) -> list[Block]:
    if not answer.users:
        return [Line(NOBODY)]
    table = table_of(COLUMNS, zip(answer.together.pools, answer.rows(), strict=True))
    return [table, Line(), *(Line(text, dim=True) for text in _legend(answer))]


def _legend(answer: FleetResult) -> Iterator[str]:
    alone = sum(pool.row.users for pool in answer.together.pools)
    yield f"expected users of the pools alone: {alone:,} in sum; together they serve {change(answer.users / alone - 1)}"
    yield (
        f"users alone: the expected users of the pool without the others. The other columns show one run of the whole "
        f"fleet at {answer.users:,} users: the share of requests that the router sends to the pool, how many of them "
        "miss the SLO, and their latencies."
    )


def summary(answer: FleetResult) -> Summary:
    pools = answer.together.pools
    gpus = joined([_pool_title(pool) for pool in pools])
    each = usd_per_user_month(answer.usd_per_month, answer.users_low)
    rent = money_figures(answer.usd_per_month, each, if_all_come(answer.users_low))
    servers = [f"{servers_text(pool.row.replicas, pool.row.gpus)} ({pool.question.gpu.title})" for pool in pools]
    return page(
        answer,
        f"How many users can {model_title(answer.question.architecture.name)} serve on {gpus} together?",
        f"on {gpus} together",
        bought=(("servers", f"{', '.join(servers)}; no spare"), *rent, *price_figures(_priced(answer))),
        priced=_priced(answer),
        risk=f"{_failure_text(answer)} A router other than {answer.router} may serve fewer users.",
        options=_options(answer),
        words=[("router", f"the program that sends each request to a server; {answer.router} is its policy.")],
    )


def _priced(answer: FleetResult) -> list[Priced]:
    return [(pool.question.gpu, pool.question.gpu.usd_per_hour) for pool in answer.together.pools]


def _options(answer: FleetResult) -> Options:
    rows = [
        (_pool_title(pool), f"{pool.row.users_low:,}", f"{pool.row.users:,}",
         *_money_cells(usd_per_month(pool.row.gpus, pool.question.gpu.usd_per_hour), pool.row.users_low))
        for pool in answer.together.pools
    ]  # fmt: skip
    money = _money_cells(answer.usd_per_month, answer.users_low)
    together = ("all together", f"{answer.users_low:,}", f"{answer.users:,}", *money)
    alone = sum(pool.row.users for pool in answer.together.pools)
    return Options(
        title="Each kind of GPU alone, and all together",
        columns=("GPUs", SAFE, BEST, "$ a month", PER_SAFE_USER),
        rows=(*rows, together),
        marked=len(rows),
        note=f"Expected users of the separate pools add up to {alone:,}; together {change(answer.users / alone - 1)}. "
        f"{PER_SAFE_MEANING}{_added_text(answer)}",
    )


def _added_text(answer: FleetResult) -> str:
    """Of two pools, what the one that serves fewer costs for each user that it adds."""
    if len(answer.together.pools) != 2:
        return ""
    less, more = sorted(answer.together.pools, key=lambda pool: pool.row.users_low)
    month = usd_per_month(less.row.gpus, less.question.gpu.usd_per_hour)
    added = answer.users_low - more.row.users_low
    if month is None:
        return ""
    each = f", at {dollars(month / added)} dollars per added user" if added > 0 else ""
    return f" Adding {_pool_title(less)} to {_pool_title(more)} serves {max(added, 0):,} more users{each}."


def _failure_text(answer: FleetResult) -> str:
    """What is left while a server of each pool is down, the one that is missed most first."""
    pools = sorted(answer.together.pools, key=partial(_left_without, answer))
    down = [
        f"while {'a' if pool.row.replicas > 1 else 'the only'} server with {pool.question.gpu.title} is down, the "
        f"others serve about {_left_without(answer, pool):,} users"
        for pool in pools
    ]
    return f"There is no spare server: {'; '.join(down[:MOST_DOWN])}."


def _left_without(answer: FleetResult, lost: PoolAlone) -> int:
    """Users without one server of a pool: those of the only other pool alone, else in proportion."""
    others = [pool for pool in answer.together.pools if pool is not lost]
    if lost.row.replicas == len(others) == 1:
        return others[0].row.users_low
    share = lost.row.users_low / lost.row.replicas / max(sum(pool.row.users_low for pool in answer.together.pools), 1)
    return math.floor((1 - share) * answer.users_low)


def _money_cells(month: float | None, users: int) -> tuple[str, str]:
    return whole_dollars(month), dollars(usd_per_user_month(month, users))


def _pool_title(pool: PoolAlone) -> str:
    return f"{pool.row.gpus:,} × {pool.question.gpu.title}"


def _gpus(answer: FleetResult) -> str:
    return joined([f"{pool.row.gpus} × {pool.question.gpu.name}" for pool in answer.together.pools])


def details(answer: FleetResult) -> Json:
    """Where the figures of each GPU come from."""
    terms = [
        item
        for pool in answer.together.pools
        for item in (*of_terms(pool.question.gpu.name, gpu_rows(pool.question.gpu)),
                     *of_terms(f"{pool.question.gpu.name}: memory and step times", pool.plan.assumptions))
    ]  # fmt: skip
    return pooled_details(answer, _gpus(answer), terms)
