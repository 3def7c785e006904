"""Whether speculative decoding helps: beside none, under one load and at the most users."""

from collections.abc import Sequence
from dataclasses import dataclass

from files.documents import Json
from headcount.queries.sweeps.layout import Layout
from headcount.queries.sweeps.layouts import SHARED_REPLICATIONS, Layouts
from headcount.text.units import milliseconds
from simulator.study.points import Point
from simulator.study.served import latency_summary

AS_FAST = 1.1  # times: nearer ones are as fast, as far as anybody can tell


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """The best layout with drafts beside the best without, both under the load that the weaker of them serves."""

    load: str  # such as `486 users`
    without: Layout
    drafting: Layout
    tpot_p50_s: tuple[float, float]
    """Without drafts, and with them."""

    def __str__(self) -> str:
        before_s, after_s = self.tpot_p50_s
        if before_s > AS_FAST * after_s:
            faster = f"answers are {before_s / after_s:.1f} times as fast"
        elif after_s > AS_FAST * before_s:
            faster = f"answers take {after_s / before_s:.1f} times as long"
        else:
            faster = "answers are as fast"
        times = f"TPOT p50 {milliseconds(after_s)} instead of {milliseconds(before_s)} with {self.load} each"
        return f"{self.drafting.name}: {faster} ({times}); {self._users}"

    @property
    def _users(self) -> str:
        one, other = self.without.row, self.drafting.row
        assert one is not None and other is not None, "both serve users"
        at = f"{other.users_low:,} users at 95 % confidence instead of {one.users_low:,}"
        if other.users_low > one.users_low:
            return f"more users, too: {at}"
        if other.users > one.users:
            known = f"expected {other.users:,} instead of {one.users:,}, but known less well"
            return f"whether it serves more users is open: {known} ({other.users_low:,} to {other.users_high:,})"
        return f"it serves fewer: {at}"

    def to_json(self) -> Json:
        before_s, after_s = self.tpot_p50_s
        return {
            "load": self.load, "without": self.without.name, "drafting": self.drafting.name,
            "tpot_p50_s_without": before_s, "tpot_p50_s_drafting": after_s,
        }  # fmt: skip


def drafts_compared(layouts: Layouts, found: Sequence[Layout], users: int | None) -> Drafts | None:
    """With the users that were asked for, if any. None where drafts are not beside none, or not both serve somebody."""
    served = [each for each in found if each.row is not None and each.row.users and each.row.point is not None]
    plain = [each for each in served if each.choice.get("speculation") is None]
    drafts = [each for each in served if each.choice.get("speculation") is not None]
    if not plain or not drafts:
        return None
    without, drafting = (max(kind, key=_users) for kind in (plain, drafts))
    size = users or min(each.row.point.size for each in (without, drafting) if each.row and each.row.point)
    points = [layouts.under(each, size, SHARED_REPLICATIONS) for each in (without, drafting)]
    before_s, after_s = map(_tpot_p50_s, points)
    if before_s is None or after_s is None:
        return None
    return Drafts(load=layouts.load_name(size), without=without, drafting=drafting, tpot_p50_s=(before_s, after_s))


def _users(each: Layout) -> tuple[int, int]:
    """At 95 % confidence, and expected."""
    return each.users, each.row.users if each.row else 0


def _tpot_p50_s(point: Point | None) -> float | None:
    return None if point is None else latency_summary(point, "tpot_s")["p50"]
