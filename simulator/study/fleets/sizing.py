"""The fewest servers of one layout that serve the users, by simulation."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from simulator.study.candidate import WITHIN, Level, evaluator_of, shares_nothing
from simulator.study.capacity_row import CapacityRow
from simulator.study.capacity_table import CapacityTable
from simulator.study.fleets.layouts import FleetQuestion, Layout
from simulator.study.fleets.screening import Screened, estimated_users
from simulator.study.points import Point
from simulator.study.served import users_point

MOST_SERVERS: Final = 16  # of a fleet that is simulated whole
MOST_SPREAD: Final = 64  # the same where each server serves fewer users the more servers there are
MOST_USERS = 10_000  # the same
MOST_CHECKED: Final = 25_000  # users of a larger fleet that is simulated whole before one more server is bought
COARSE_USERS: Final = 1_000  # of two pools that are compared with others
NO_LOSS: Final = 0.85  # of a server's users in a fleet twice as large, as estimated: above it may be chance
LOSS_GROWS: Final = 1.8  # each doubling loses more: 0.45, 0.49, 0.57 as powers up to 64 servers, by estimate 0.32
UNSURE: Final = 1.08  # times an estimate, that it is worth a simulation
MOST_BOUGHT: Final = 10_000_000  # servers
CLEARLY_MORE: Final = 1.2  # times as many servers serve more users, unless they lose too much: less may be chance
LOSES_TOO_MUCH: Final = "spread over more servers, conversations lose too many prefix hits"


@dataclass(frozen=True, kw_only=True, eq=False)
class Sized:
    """A layout with its number of servers; 0 where it serves nobody, for the reason of its row."""

    screened: Screened
    servers: int  # without spare ones
    row: CapacityRow  # of the largest fleet that was simulated, at most that many servers
    served: Point | None  # that fleet under its part of the users to serve
    each: float = 1.0  # users of a server over those of one that was simulated
    is_confirmed: bool = False  # as precise and as large as it is simulated at all
    prefill_servers: int = 0  # of the servers: they compute prompts alone

    @property
    def layout(self) -> Layout:
        """Behind the router that was found; of two pools, it need not be the one that was screened."""
        layout = self.screened.layout
        return layout if self.row.router is None else replace(layout, router=self.row.router)

    @property
    def scale(self) -> float:
        """Servers over those that were simulated; of two pools, of the one that grows less."""
        disaggregated = self.row.disaggregated
        if disaggregated is None:
            return self.servers / self.row.replicas
        return min(
            self.prefill_servers / disaggregated.num_prefill,
            (self.servers - self.prefill_servers) / disaggregated.num_decode,
        )

    @property
    def is_whole(self) -> bool:
        """Whether all its servers were simulated together."""
        return self.servers == self.row.replicas

    @property
    def may_do_with_fewer(self) -> bool:
        """Whether one server fewer is within what few replications may be off by."""
        fewer = self.users() * (self.servers - 1) / max(self.servers, 1)
        return not self.is_confirmed and fewer * WITHIN[Level.COARSE] >= self.screened.users

    @property
    def spare(self) -> int:
        return self.screened.spare

    @property
    def bought(self) -> tuple[int, int]:
        """Servers, spare ones included, and of them those that compute prompts alone."""
        return self.layout.bought(self.servers, self.prefill_servers, self.spare)

    @property
    def usd_per_hour(self) -> float:
        """Spare servers included."""
        return self.layout.usd_per_hour(*self.bought)

    @property
    def gpus(self) -> int:
        """Spare servers included."""
        return self.layout.gpus(*self.bought)

    def users(self, name: str = "users_low") -> int:
        """One of a row's numbers of users, for all servers but the spare ones."""
        users: int = getattr(self.row, name)
        return math.floor(users * self.scale * self.each + 1e-9)

    def mean(self, name: str) -> float:
        """A rate or a number in flight under the users to serve, over all servers but the spare ones."""
        return self.served.mean(name) * self.scale * self.each if self.served is not None else 0.0


def most_together(each: Callable[[int], float], users_each: float, most_users: int = MOST_USERS) -> int:
    """Servers that are simulated together: what a simulation takes grows with users. `each` as of `kept`."""
    most = MOST_SPREAD if _loses(each) else MOST_SERVERS
    return max(min(most, int(most_users / max(users_each, 1.0))), 1)


def kept(each: Callable[[int], float], simulated: int, servers: int) -> float:
    """What a server serves among so many, over what it does among those that are simulated; never more.

    `each` estimates users of one server by their number. Where any server may get the next turn of a conversation, it
    finds less of it in its cache the more there are: by the estimate up to MOST_SERVERS, beyond by a power of the
    number of servers, LOSS_GROWS times the one that the last doubling shows.
    """
    there = each(min(simulated, MOST_SERVERS))
    near = min(each(min(servers, MOST_SERVERS)) / there, 1.0) if there else 0.0
    if servers <= MOST_SERVERS or not near or not _loses(each):
        return near
    loss = LOSS_GROWS * math.log2(each(MOST_SERVERS // 2) / each(MOST_SERVERS))
    return near * math.pow(servers / max(simulated, MOST_SERVERS), -loss)


def _loses(each: Callable[[int], float]) -> bool:
    """Whether servers lose users to one another's caches."""
    return each(MOST_SERVERS) < NO_LOSS * each(MOST_SERVERS // 2)


@dataclass(kw_only=True)
class Sizing:
    """Finds how many servers of one layout the users need; what is simulated is in the `table` of its GPU."""

    question: FleetQuestion
    screened: Screened
    level: Level
    table: CapacityTable
    rows: dict[int, CapacityRow] = field(default_factory=dict)

    def run(self, first: int) -> Sized:
        """The fewest servers whose users at 95 % confidence reach the users; `first` is where the search begins."""
        most = self._most_simulated()
        servers = first if most else 1
        while True:
            row = self._row(min(servers, most or servers))
            if row.users_low < row.replicas:  # a fleet of more servers than users is no answer
                return self._sized(0, row)
            if not most:
                servers = math.ceil(self._needed(row.replicas) - 1e-9)
                return self._sized(servers, self._row(servers))
            enough = self._enough()
            if enough is None:  # one more at least, however chance has it
                few = max(self.rows)
                if self._loses_too_much(few):
                    return self._sized(0, replace(self.rows[few], reason=LOSES_TOO_MUCH))
                if few == most:
                    return self._scaled(most)
                servers = max(math.ceil(self._needed(few)), few + 1)
                continue
            fewer = self._fewer(enough)
            if fewer is None:
                return self._sized(enough, self.rows[enough])
            servers = fewer

    def with_row(self, row: CapacityRow) -> Sized:
        """As many servers as a row has."""
        return self._sized(row.replicas, row)

    def _most_simulated(self) -> int:
        """Servers that are simulated together; 0 where one stands for any number of them."""
        layout = self.screened.layout
        if shares_nothing(self.question.capacity_of(layout, 1), layout.plan):
            return 0
        return most_together(self._each, self.screened.users_per_server)

    def _row(self, servers: int) -> CapacityRow:
        if servers not in self.rows:
            self.rows[servers] = simulated_row(self.table, self.screened.layout, servers, self.level)
        return self.rows[servers]

    def _loses_too_much(self, servers: int) -> bool:
        """Whether clearly fewer of them serve as many users."""
        users = self.rows[servers].users
        return any(row.users >= users for few, row in self.rows.items() if CLEARLY_MORE * few <= servers)

    def _needed(self, servers: int) -> float:
        """Servers that the users need if each serves what it does in a fleet that was simulated."""
        return self.question.users * servers / self.rows[servers].users_low

    def _enough(self) -> int | None:
        """The smallest fleet that was simulated and serves the users."""
        return min(
            (servers for servers, row in self.rows.items() if row.users_low >= self.question.users), default=None
        )

    def _fewer(self, enough: int) -> int | None:
        """A smaller fleet that may serve the users too: what the simulated one shows, as the estimate changes."""
        short = max((servers for servers in self.rows if servers < enough), default=0)
        if enough - short < 2:
            return None
        ratio = self.rows[enough].users_low / max(self._estimated(enough), 1e-9)
        servers = max(min(math.ceil(self._needed(enough)), enough - 1), short + 1)
        if UNSURE * ratio * self._estimated(servers) < self.question.users:
            return None
        while servers > short + 1 and ratio * self._estimated(servers - 1) >= self.question.users:
            servers -= 1
        return servers

    def _scaled(self, most: int) -> Sized:
        """More servers than are simulated: each serves what it does there, less what it loses among more of them."""
        servers, each = 0, 1.0
        while (needed := math.ceil(self._needed(most) / each - 1e-9)) > servers:
            servers, each = needed, kept(self._each, most, needed)
            if not each or servers > MOST_BOUGHT:
                row = replace(self.rows[most], reason=LOSES_TOO_MUCH)
                return self._sized(0, row)
        return self._one_fewer(servers, most, each) or self._sized(servers, self.rows[most], each)

    def _one_fewer(self, servers: int, most: int, each: float) -> Sized | None:
        """That fleet simulated, where it may serve the users and is not much larger; None where it does not."""
        fewer, users = servers - 1, self.question.users
        if not most < fewer <= MOST_SERVERS or users > MOST_CHECKED or UNSURE * fewer < self._needed(most) / each:
            return None
        row = self._row(fewer)
        return self._sized(fewer, row) if row.users_low >= users else None

    def _each(self, servers: int) -> float:
        """Users of one server among so many, by estimate."""
        return self._estimated(servers) / servers

    def _estimated(self, servers: int) -> float:
        layout = self.screened.layout
        return estimated_users(layout, servers, self.question, self.question.load(layout))[0]

    def _sized(self, servers: int, row: CapacityRow, each: float = 1.0) -> Sized:
        served = self._served(servers * each, row) if servers else None
        return Sized(
            screened=self.screened,
            servers=servers,
            row=row,
            served=served,
            each=each,
            is_confirmed=row.evidence == Level.CONFIRMED.word,
        )

    def _served(self, servers: float, row: CapacityRow) -> Point:
        """The simulated fleet under its part of the users to serve; fewer servers stand for those that serve less."""
        question, layout = self.question, self.screened.layout
        assert row.point is not None, "a row with users has a point"
        asked = question.capacity_of(layout, row.replicas)
        evaluator = evaluator_of(asked, layout.plan, row.replicas, self.table.how)
        share = question.users * row.replicas / servers / row.users
        is_confirmed, replications = row.evidence == Level.CONFIRMED.word, question.replications
        size = row.point.size * share
        return users_point(evaluator, size, is_confirmed=is_confirmed, replications=replications)


def simulated_row(table: CapacityTable, layout: Layout, servers: int, level: Level) -> CapacityRow:
    """What so many servers of a layout serve, known so well."""
    found = table.candidate(layout.plan, servers, layout.router).known_as(level)
    return found.row(servers * layout.plan.gpus)
