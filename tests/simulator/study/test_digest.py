"""The digest of a simulation: equal in every process, another for every other input."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from time import time
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.registry import SEARCH_PATH
from kvcache.gpus.gpu import find_gpu
from simulator.deployment import resolve
from simulator.fleet.fleet import Fleet
from simulator.fleet.routers import random
from simulator.study.loads import UserLoad
from simulator.study.running.task import Task
from simulator.study.slo import SLO
from simulator.study.store.digest import Digests, UndigestibleError
from simulator.study.store.origin import Origin, _origin, origin
from tests.simulator.study.study_tasks import small_task
from workloads.load import load_preset

HERE = Origin("code", "machine")


def key(task: Task) -> bytes | None:
    return Digests().of_task(task, HERE)


def chat_task() -> Task:
    plan = resolve("llama-3.1-8b", "h100-sxm", max_model_len=2048)
    load = UserLoad(population=load_preset("chat"), max_model_len=2048, seed=1)
    return small_task(fleet=plan.fleet(2, "random"), load=load)


def mixture_task() -> Task:
    """Its step times hold a function, and twice as long ones another."""
    plan = resolve("qwen3-30b-a3b", "h100-sxm", data_parallel_size=2)
    fleet = plan.fleet(1, "least-outstanding")
    return small_task(fleet=fleet.with_pools(lambda pool: replace(pool, step_times=pool.step_times.times(2.0))))


MADE = {"small": small_task, "chat": chat_task, "mixture": mixture_task}


@pytest.mark.slow
@pytest.mark.parametrize("name", MADE)
def test_the_digest_is_the_same_in_a_process_with_other_hashes(name: str) -> None:
    code = f"from tests.simulator.study.test_digest import MADE, key; print(key(MADE[{name!r}]()).hex())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True,
            text=True, cwd=Path(__file__).parents[3],
        ).stdout.strip()
        for seed in ("1", "2")
    }  # fmt: skip
    mine = key(MADE[name]())
    assert mine is not None
    assert found == {mine.hex()}


def leaves(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every plain value and array inside, with its place."""
    if is_dataclass(value):
        for item in fields(value):
            yield from leaves(getattr(value, item.name), (*place, item.name))
    elif isinstance(value, tuple):
        for index, each in enumerate(value):
            yield from leaves(each, (*place, index))
    elif isinstance(value, bool | int | float | np.ndarray) and "usd_per_hour" not in place:
        yield place, value


def changed(value: Any, place: tuple[Any, ...], new: Any) -> Any:
    """A copy with another value there, whatever the class would say of it."""
    if not place:
        return new
    if isinstance(value, tuple):
        return tuple(changed(each, place[1:], new) if index == place[0] else each for index, each in enumerate(value))
    copy = object.__new__(type(value))
    for item in fields(value):
        inner = getattr(value, item.name)
        object.__setattr__(copy, item.name, changed(inner, place[1:], new) if item.name == place[0] else inner)
    return copy


ASKED = {name: MADE[name]() for name in ("small", "chat")}
PLACES = {name: list(leaves(task)) for name, task in ASKED.items()}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLACES)
@given(data=st.data())
def test_any_changed_input_changes_the_digest(name: str, data: st.DataObject) -> None:
    task = ASKED[name]
    place, value = data.draw(st.sampled_from(PLACES[name]))
    if isinstance(value, np.ndarray):
        new = value.copy()
        new.view(np.uint8)[data.draw(st.integers(0, value.nbytes - 1))] ^= 1 << data.draw(st.integers(0, 7))
    elif isinstance(value, bool):
        new = not value
    else:
        new = data.draw((st.integers(0, 2**40) if isinstance(value, int) else st.floats()).filter(lambda x: x != value))
    assert key(changed(task, place, new)) != key(task)


def test_a_price_changes_no_digest_but_another_gpu_does() -> None:
    gpu = find_gpu("h100-sxm")
    digest = Digests().of
    assert digest(gpu.at_price(1.0)) == digest(gpu) != digest(find_gpu("h200-sxm"))
    assert digest(replace(gpu, memory_bytes=gpu.memory_bytes + 1)) != digest(gpu)


def test_another_population_has_another_digest() -> None:
    load = chat_task().load
    assert isinstance(load, UserLoad)
    populations = [load.population, *(load.population.with_think_time(mean_s) for mean_s in (0, 1, 2))]
    keys = {key(replace(chat_task(), load=replace(load, population=each))) for each in populations}
    assert len(keys - {None}) == 4


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.slow
@given(plain, plain)
def test_two_values_have_one_digest_only_if_they_are_alike(one: Any, other: Any) -> None:
    alike = repr(one) == repr(other)
    assert (Digests().of(one) == Digests().of(other)) == alike


class Colour(Enum):
    RED = 1


def test_values_of_other_types_have_other_digests() -> None:
    values = [
        0, False, 0.0, -0.0, None, "", b"", (), [], {}, frozenset(), ((),), np.float64(0), np.int32(0), np.zeros(1),
        np.zeros(1, "f4"), np.zeros((1, 1)), "0", Path("0"), partial(np.zeros_like, 1), np.zeros_like, np.ones_like,
        SLO, SLO(), partial(np.zeros_like, x=1), MappingProxyType({"x": 1}), {1: "x"},
    ]  # fmt: skip
    assert len({Digests().of(value) for value in values}) == len(values)
    assert Digests().of(frozenset("abc")) == Digests().of(frozenset("cba"))


@pytest.mark.parametrize(
    "value",
    [
        lambda: 0,
        object(),
        np.array([object()]),
        Colour.RED,
        partial(lambda: 0),
        Digests().of,
        pytest.raises,
        [object()],
    ],
    ids=("lambda", "object", "array of objects", "enum", "partial", "method", "function", "list"),
)
def test_code_and_objects_of_others_have_no_digest(value: Any) -> None:
    with pytest.raises(UndigestibleError):
        Digests().of(value)


class Mine:
    """A router of the user's."""

    def __init__(self, _seed: int) -> None:
        pass

    def choose(self, _view: Any) -> int:
        return 0


def routed(router: Any) -> Task:
    return small_task(fleet=Fleet(pools=small_task().fleet.pools, router=router))


def test_a_router_of_the_user_s_is_never_shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert key(routed(Mine)) is None
    assert key(routed("tests.simulator.study.test_digest:Mine")) is None
    assert None not in (key(routed("round-robin")), key(routed(random.Router)))
    (tmp_path / "routers").mkdir()
    (tmp_path / "routers" / "round_robin.py").write_text(
        "SEES = ()\nfrom simulator.fleet.routers.random import Router\n"
    )
    monkeypatch.setenv(SEARCH_PATH, str(tmp_path))
    assert key(routed("round-robin")) is None


def test_other_code_and_another_machine_have_other_keys() -> None:
    keys = {Digests().of_task(small_task(), Origin(*names)) for names in (("a", "b"), ("a", "c"), ("c", "b"))}
    assert len(keys) == 3
    assert origin() == origin.__wrapped__()


def test_changed_code_is_another_origin_and_code_that_changed_after_it_was_loaded_is_nobody_s(tmp_path: Path) -> None:
    assert _origin(tmp_path, 0.0).code != _origin(tmp_path, 0.0).code  # no source
    source = tmp_path / "simulator" / "core" / "some.py"
    source.parent.mkdir(parents=True)
    codes = set()
    for text in ("1", "2", "1"):
        source.write_text(text)
        codes.add(_origin(tmp_path, time() + 60).code)
        assert _origin(tmp_path, time() + 60).code in codes
    assert len(codes) == 2
    assert _origin(tmp_path, time() - 60).code != _origin(tmp_path, time() - 60).code


def test_a_digest_computed_once_is_that_of_the_same_object() -> None:
    digests, tasks = Digests(), [small_task(replication=number) for number in range(50)]
    found = [digests.of_task(task, HERE) for task in tasks]
    del tasks
    assert found == [digests.of_task(small_task(replication=number), HERE) for number in range(50)]
    assert len(set(found)) == 50
