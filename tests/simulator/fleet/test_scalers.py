"""Laws of every autoscaler."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from files.registry import SEARCH_PATH
from simulator.fleet.scaler import SCALERS, Observed, Scaler, find_scaler
from simulator.fleet.scalers import hpa
from tests.simulator.fleet.observed_fleets import observed

WRITTEN = {"schedule": "schedule:0h=2,8h=5,18h=3"}  # a schedule must be given
EVERY = [WRITTEN.get(name, name) for name in (file.replace("_", "-") for file in SCALERS.names())]


looks = st.lists(st.tuples(st.integers(0, 200), st.integers(0, 50), st.floats(0, 1)), min_size=1, max_size=60)


def follow(scaler: Scaler, seen: list[tuple[int, int, float]], *, least: int = 1, most: int = 9) -> list[int]:
    """What a fleet that is ready at once would be."""
    sizes, replicas = [], least
    for step, (running, waiting, kv_usage) in enumerate(seen, 1):
        look = observed(
            time_s=step * scaler.period_s, elapsed_s=scaler.period_s, replicas=replicas, running=running,
            waiting=waiting, kv_usage=kv_usage, least=least, most=most, arrived=running,
        )  # fmt: skip
        replicas = look.bounded(scaler.desired_replicas(look))
        sizes.append(replicas)
    return sizes


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=30)
@given(seen=looks)
def test_an_autoscaler_wants_whole_replicas_and_the_same_again(name: str, seen: list[tuple[int, int, float]]) -> None:
    sizes = follow(find_scaler(name)(), seen)
    assert sizes == follow(find_scaler(name)(), seen)
    assert all(isinstance(size, int) and 1 <= size <= 9 for size in sizes)


@settings(max_examples=60)
@given(value=st.floats(0.91, 1.09), replicas=st.integers(1, 30))
def test_hpa_does_nothing_within_its_tolerance(value: float, replicas: int) -> None:
    assert hpa.replicas_for((16 * value,) * replicas, 16, replicas, 0.1) == replicas


@pytest.mark.parametrize("name", ["hpa", "aibrix-apa", "keda"])
@settings(max_examples=30)
@given(busy=st.integers(60, 200))
def test_nobody_scales_down_within_the_window_of_a_higher_wish(name: str, busy: int) -> None:
    scaler = find_scaler(name)()
    period = round(scaler.period_s)
    loads = [(busy, busy, 0.9)] * 8 + [(0, 0, 0.0)] * (600 // period)
    sizes = follow(scaler, loads)
    fell = next(place for place in range(8, len(sizes)) if sizes[place] < sizes[7])
    assert 300 <= (fell - 7) * period <= 300 + period


@pytest.mark.parametrize("name", [name for name in EVERY if name != "schedule"])
def test_more_load_never_asks_for_a_smaller_fleet_at_once(name: str) -> None:
    light, heavy = (follow(find_scaler(name)(), [(load, load // 4, min(load / 100, 1.0))] * 80)[-1] for load in (2, 90))
    assert light <= heavy


MINE = '''
"""Two more than there are."""
from files.schema import AtLeastOne, Strict

class Settings(Strict, frozen=True, kw_only=True):
    more: AtLeastOne = 2

class Scaler:
    period_s = 30.0

    def __init__(self, settings):
        self.settings = settings

    def desired_replicas(self, seen):
        return seen.replicas + self.settings.more
'''


def test_an_autoscaler_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    (tmp_path / "scalers").mkdir()
    (tmp_path / "scalers" / "my_own.py").write_text(MINE)
    assert find_scaler("my-own:more=3")().desired_replicas(observed(replicas=4)) == 7
    assert find_scaler("tests.simulator.fleet.test_scalers:MadeHere")().desired_replicas(observed(replicas=4)) == 4


class MadeHere:
    """One without settings."""

    period_s = 1.0

    def desired_replicas(self, seen: Observed) -> int:
        return seen.replicas


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("hpx", "no autoscaler 'hpx'; did you mean 'hpa'"),
        ("hpa:target=3", "is no parameter of the autoscaler hpa; did you mean 'target_average_value'"),
        ("hpa:tolerance=2", "tolerance is 2; it must be a number from 0 to 1"),
        ("hpa:metric=queue", "metric is 'queue'; it must be one of"),
        ("keda:polling-interval=30", "'30' is not a time"),
        ("schedule", "write the schedule as schedule:0h=2,8h=10,18h=4"),
        ("schedule:8h=2,1h=3", "ascending times"),
        ("schedule:8h=two", "'two' is not a whole number"),
        ("dynamo-planner:mode=throughput", "needs engine_rps"),
        ("tests.simulator.fleet.test_scalers:EVERY", "is no class with desired_replicas"),
        ("tests.simulator.fleet.test_scalers:MadeHere:more=2", "takes no parameters"),
        ("nowhere:Scaler", "no autoscaler 'nowhere:Scaler'"),
    ],
)
def test_an_autoscaler_that_is_none_is_told(written: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        find_scaler(written)
