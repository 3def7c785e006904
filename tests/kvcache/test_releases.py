"""Which releases are answered for, and that one file knows what differs between them."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcache.models.catalog import find_gpu, load_model
from kvcache.releases import (
    DEFAULT_RELEASE,
    ENGINE_V1,
    NEWEST_RELEASE,
    OLDEST_RELEASE,
    SCHEDULER_RULES,
    Rule,
    check_known_memory,
    check_simulated,
    newer_than_known,
    precedes,
    release_key,
    release_number,
    rules,
)
from simulator.engines.memory import memory_budget
from simulator.engines.vllm.engine import EngineConfig

ROOT = Path(__file__).parents[2]
PACKAGES = ("kvcache", "workloads", "simulator", "calibrate", "headcount")
# Build recipes and programs for other interpreters name releases as their data.
NAME_RELEASES = ("calibrate/interpreters", "calibrate/record/probes")
SOURCES = [
    path
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
    if path != ROOT / "kvcache/releases.py"
    if not any(path.is_relative_to(ROOT / folder) for folder in NAME_RELEASES)
]
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
RELEASE = re.compile(r"0\.[0-9]{1,2}\.[0-9]{1,2}")
numbers = st.tuples(*[st.integers(0, 40)] * 3)


@given(number=numbers)
def test_a_release_is_known_or_told(number: tuple[int, int, int]) -> None:
    release = ".".join(map(str, number))
    assert release_key(release) == number
    assert release_number(f"v{release}rc2") == release
    for check, first in ((check_known_memory, OLDEST_RELEASE), (check_simulated, ENGINE_V1.since)):
        assert first is not None
        if precedes(release, first):
            with pytest.raises(ValueError, match=f"vllm_version is {release}"):
                check(release)
        else:
            check(release)
    assert (newer_than_known(release) is None) == (number <= release_key(NEWEST_RELEASE))


def test_no_budget_for_a_release_that_nobody_looked_at() -> None:
    arch, gpu = load_model("llama-3.1-8b"), find_gpu("h100-sxm")
    assert memory_budget(arch, gpu, vllm_version="0.4.1", max_model_len=8192).fits
    with pytest.raises(ValueError, match=r"vllm_version is 0.4.0; memory is known from 0.4.1 on; give a later release"):
        memory_budget(arch, gpu, vllm_version="0.4.0", max_model_len=8192)


@given(number=numbers)
def test_a_rule_holds_from_its_first_release_up_to_its_last(number: tuple[int, int, int]) -> None:
    release = ".".join(map(str, number))
    rule = Rule(since="0.11.0", until="0.20.1", meaning="…", source="…")
    assert rule.holds_in(release) == ((0, 11, 0) <= number < (0, 20, 1))


@pytest.mark.parametrize("name", rules())
def test_a_rule_has_a_range_a_meaning_and_a_source(name: str) -> None:
    rule = rules()[name]
    assert rule.since or rule.until
    assert rule.meaning
    assert rule.source
    for release in filter(None, (rule.since, rule.until)):
        assert RELEASE.fullmatch(release)
        assert not precedes(NEWEST_RELEASE, release), "no rule of a release that was not looked at"


def test_the_default_release_is_one_that_is_known() -> None:
    assert newer_than_known(DEFAULT_RELEASE) is None


def test_the_scheduler_has_a_setting_for_each_of_its_rules() -> None:
    assert set(SCHEDULER_RULES) <= {item.name for item in fields(EngineConfig)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_releases_are_named_and_compared_in_one_file(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            assert not RELEASE.fullmatch(node.value) or _is_our_own(path), f"{where} names a release"
        if isinstance(node, ast.Compare) and any(isinstance(found, ORDERINGS) for found in node.ops):
            assert not re.search(r"version|release|\(0, \d+, \d+\)", ast.unparse(node)), f"{where} compares releases"


def _is_our_own(path: Path) -> bool:
    return path == ROOT / "headcount/version.py"
