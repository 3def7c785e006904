"""Suggestions: changes of one setting that serve more users, each tried with the same users."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from files.documents import Json
from headcount.inputs.reading.variations import FORMATS
from headcount.queries.result import Progress, Watch, noted
from headcount.queries.sweeps.candidates import candidates, change_text, screen_change
from headcount.queries.sweeps.layout import Layout
from headcount.text.blocks import Line
from headcount.text.units import counted, percent
from headcount.text.words import AT_CONFIDENCE, PRECISION_REMARK, ratio_text
from simulator.study.capacity_question import CapacityQuestion
from simulator.study.capacity_row import CapacityRow
from simulator.study.running.simulations import Simulations
from simulator.study.statistics import Interval
from simulator.study.variations.ratios import users_ratio
from simulator.study.variations.variation import screen, simulated

MOST_TRIED: Final = 3
TRIED: Final = "suggestions simulated"  # what progress counts
MOST_TOLD: Final = 3
LEAST_FOUND: Final = 0.01  # more of the prompt tokens in a cache: with less, that is not why
PREFILL: Final = "prefill"  # in a bottleneck
WORTH_TRYING: Final = 0.95  # of the users as they are, by the estimate: with fewer a change is not simulated
NOT_ESTIMATED: Final = ("router", "max_loras")  # estimates know nothing of them: always tried
LIFTS_LEGEND: Final = (
    "suggestions: one setting is changed at a time; the most promising changes are simulated with the same users. The "
    "percentage is the change of the users at 95 % confidence, with the interval over replications."
)


@dataclass(frozen=True, kw_only=True, eq=False)
class Suggestion:
    """One setting changed, simulated and compared with the row whose number leads."""

    argument: str
    value: Any
    layout: Layout
    base: CapacityRow

    @property
    def ratio(self) -> Interval | None:
        """Users over the base's, paired, with the 95 % interval; None where nobody is served."""
        return users_ratio(self.layout.row, self.base) if self.layout.row else None

    @property
    def gains(self) -> bool:
        """Whether the whole interval lies above 1."""
        return self.ratio is not None and self.ratio.low > 1

    @property
    def change(self) -> str:
        """As the command line takes it, such as `--kv-cache-dtype fp8`."""
        return change_text(self.argument, self.value)

    def __str__(self) -> str:
        said = f"{self.base.users_low:,} → {self.layout.users:,} users {AT_CONFIDENCE}"
        said = f"{said}: {ratio_text(self.ratio)}"
        return "; ".join(filter(None, (said, self.why, self.remark)))

    @property
    def why(self) -> str:
        """That fewer prompt tokens are computed, where they are the bottleneck and more are found in a cache."""
        before, after = (_share_found(row) for row in (self.base, self.layout.row))
        if after < before + LEAST_FOUND or PREFILL not in (self.base.binding or ""):
            return ""
        found = f"{percent(round(after, 2))} of prompt tokens are found in a cache instead of"
        return f"{found} {percent(round(before, 2))}"

    @property
    def remark(self) -> str:
        """What to mind beside the gain."""
        return PRECISION_REMARK if self.argument in FORMATS else ""

    def to_json(self) -> Json:
        row, ratio = self.layout.row, self.ratio
        return {
            "argument": self.argument,
            "value": self.value,
            "users_low": row.users_low if row else 0,
            "users": row.users if row else 0,
            "ratio": vars(ratio) if ratio else None,
            "gains": self.gains,
            "lowers_precision": self.argument in FORMATS,
        }


def _share_found(row: CapacityRow | None) -> float:
    """Of prompt tokens, in GPU memory or offloaded."""
    if row is None or row.point is None:
        return 0.0
    return row.point.mean("prefix_hit_rate") + (row.point.host_hit_rate or 0.0)


def find_suggestions(
    asked: CapacityQuestion, base: CapacityRow, progress: Watch, simulations: Simulations
) -> tuple[Suggestion, ...]:
    """The most promising changes by their estimates, simulated as often as the base; the largest gain first."""
    if base.plan is None or not base.users:
        return ()
    args = asked.args.with_attention_ranks(base.tp)
    here = replace(asked, gpus=(base.gpus,), args=args, replications=base.replications)
    found = [_looked(here, base, name, value) for name, value in candidates(asked, base, base.plan)]
    least = WORTH_TRYING * screen(here).users
    runs = [lift for lift in found if lift is not None]
    worth = [each for each in runs if each.argument in NOT_ESTIMATED or each.layout.users >= max(least, 1)]
    worth.sort(key=lambda lift: (lift.argument not in NOT_ESTIMATED, -lift.layout.users))
    tried = []
    for place, lift in enumerate(worth := worth[:MOST_TRIED]):
        watcher = noted(progress, place, len(worth), lift.change, TRIED)
        assert lift.layout.looked is not None, "a change is screened before it is simulated"
        lift.layout.looked.how.watcher, lift.layout.looked.how.simulations = watcher, simulations
        row = simulated(lift.layout.looked)
        tried.append(replace(lift, layout=replace(lift.layout, row=row)))
        progress(Progress(done=place + 1, total=len(worth), what=TRIED))
    return tuple(sorted(tried, key=lambda lift: -(lift.ratio.mean if lift.ratio else 0.0)))


def _looked(here: CapacityQuestion, base: CapacityRow, argument: str, value: object) -> Suggestion | None:
    """A change with its estimate; None where it does not run."""
    looked = screen_change(here, argument, value)
    if looked is None:
        return None
    layout = Layout(choice={argument: value}, gpus=base.gpus, looked=looked)
    return Suggestion(argument=argument, value=value, layout=layout, base=base)


def suggestion_lines(suggestions: Sequence[Suggestion], row: CapacityRow) -> list[Line]:
    """The changes that gain most, then those that were tried and do not."""
    if not suggestions:
        return [Line("suggestions: none; no single setting is estimated to serve more users")]
    gaining = [lift for lift in suggestions if lift.gains]
    others = [f"{lift.change} {ratio_text(lift.ratio)}" for lift in suggestions if not lift.gains]
    where = f"on {counted(row.gpus, 'GPU')} (bottleneck {row.binding})"
    said = [Line(f"suggestions {where}: {'' if gaining else 'none of the changes tried helps'}".rstrip(": "))]
    said += [Line(f": {lift}", bold=f"  {lift.change}") for lift in gaining[:MOST_TOLD]]
    return [*said, Line(f"tried without gain: {', '.join(others)}")] if others else said
