"""Whose users and requests these are."""

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from files.reading import InputError
from headcount.inputs.traffic import with_tenants
from workloads.load import load_preset, load_workload
from workloads.requests import RequestTable, Tenancy, Tenant, independent_requests
from workloads.tenants import joined_tenancies, read_tenants
from workloads.traces.trace import Trace
from workloads.traces.trace_file import TraceFile

SHARES = {"gold": {"share": 0.1, "priority": -2}, "rest": {"share": 0.9, "rpm_limit": 90}}
ROWS = "ts,p,o,team\n0,10,2,red\n1,20,3,blue\n2,30,4,red\n3,40,5,green\n"


def owners(trace: Trace) -> list[str]:
    tenancy = trace.table.tenancy
    assert tenancy is not None
    return [tenancy.tenants[of].name for of in tenancy.of]


def trace_of(folder: Path, text: str = ROWS, name: str = "t.csv", **how: object) -> Trace:
    (folder / name).write_text(text)
    file = TraceFile(folder / name, columns="time=ts,prompt=p,output=o,tenant=team", **how)  # type: ignore[arg-type]
    found = load_workload(file)
    assert isinstance(found, Trace)
    return found


@pytest.mark.parametrize("users", [7, 50, 333])
def test_any_number_of_users_has_the_shares_and_every_turn_of_a_user_is_one_tenant_s(users: int) -> None:
    table = load_preset("chat").draw(users, 5, seed=3, max_model_len=8192)
    made = read_tenants(SHARES).applied(table, seed=3)
    assert made.tenancy is not None
    assert [tenant.name for tenant in made.tenancy.tenants] == ["gold", "rest"]
    by_user = made.tenancy.of.reshape(users, 5)
    assert (by_user == by_user[:, :1]).all()
    assert abs((by_user[:, 0] == 0).mean() - 0.1) <= 1.5 / users
    np.testing.assert_array_equal(made.priority, np.where(made.tenancy.of == 0, -2, table.priority))
    assert made.tenancy.has_quotas
    assert made.tenancy.tenants[1] == Tenant("rest", rpm_limit=90)


def test_more_users_leave_the_others_with_their_tenant() -> None:
    few, many = (load_preset("chat").draw(users, 3, seed=3, max_model_len=8192) for users in (20, 200))
    tenants = read_tenants(SHARES)
    found = [tenants.applied(table, seed=1).tenancy for table in (few, many)]
    np.testing.assert_array_equal(found[0].of, found[1].of[:60])  # type: ignore[union-attr]


def test_a_trace_names_the_tenant_of_each_request_wherever_its_rows_go(tmp_path: Path) -> None:
    trace = trace_of(tmp_path)
    assert owners(trace) == ["red", "blue", "red", "green"]
    assert trace.table.head(2).tenancy is not None
    window = trace.window(6, 2.5)
    assert window.tenancy is not None
    names = [window.tenancy.tenants[of].name for of in window.tenancy.of]
    assert names == ["green", "red", "blue", "red", "green", "red"]
    twice = trace_of(tmp_path, rate_scale=2.0)
    assert sorted(owners(twice)) == sorted(2 * owners(trace))
    assert [name for name, prompt in zip(owners(twice), twice.table.prompt_tokens, strict=True) if prompt == 40] == [
        "green",
        "green",
    ]


def test_spliced_traces_may_name_other_tenants(tmp_path: Path) -> None:
    (tmp_path / "later.csv").write_text("ts,p,o,team\n0,50,2,amber\n1,60,2,red\n")
    assert owners(trace_of(tmp_path, splice=(tmp_path / "later.csv",))) == [
        "red", "blue", "red", "green", "amber", "red",
    ]  # fmt: skip
    one = independent_requests(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[1])
    assert joined_tenancies([one, one]) == [one, one]


def test_settings_go_to_the_tenants_that_a_trace_names(tmp_path: Path) -> None:
    table = trace_of(tmp_path).table
    made = read_tenants({"red": {"priority": 5, "tpm_limit": 100}}).applied(table, seed=0)
    np.testing.assert_array_equal(made.priority, [5, 0, 5, 0])
    assert made.tenancy is not None
    assert [tenant.tpm_limit for tenant in made.tenancy.tenants] == [np.inf, np.inf, 100.0]


def test_a_population_s_file_has_tenants_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "ours.toml"
    path.write_text('extends = "chat"\n[tenants.a]\nshare = 0.5\n[tenants.b]\nshare = 0.5\npriority = 1\n')
    clients = load_workload(path).clients  # type: ignore[union-attr]
    assert clients.tenants == read_tenants({"a": {"share": 0.5}, "b": {"share": 0.5, "priority": 1}})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"a": {"share": 0.5}, "b": {"share": 0.4}}, "add up to 0.9; they must add up to 1"),
        ({"a": {"share": 0.5}, "b": {}}, "tenant 'b' has no share, others have"),
        ({}, "0 tenants; give 1 to 1,000"),
        ({"a": {"share": 2}}, "it must be a share above 0, at most 1"),
        ({"a": {"rpm": 2}}, "rpm_limit"),
        ({"a": {"rpm_limit": 0}}, "at least 1"),
    ],
)
def test_wrong_tenants_are_told(given: dict[str, dict[str, float]], told: str) -> None:
    with pytest.raises(InputError, match=told):
        read_tenants(given)


def test_a_file_that_is_none_of_tenants_is_told(tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text("[gold]\nshare = 1\n")
    with pytest.raises(InputError, match=r"has 'gold'; give a table \[tenants\.NAME\] for each tenant"):
        read_tenants(tmp_path / "t.toml")


def test_shares_and_names_exclude_each_other(tmp_path: Path) -> None:
    table = trace_of(tmp_path).table
    with pytest.raises(InputError, match="tenant 'red' has a share, but the trace names its tenants"):
        read_tenants({"red": {"share": 1}}).applied(table, seed=0)
    with pytest.raises(ValueError, match="no tenant of the trace 'rde'; did you mean 'red'"):
        read_tenants({"rde": {"priority": 1}}).applied(table, seed=0)
    plain = independent_requests(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[1])
    with pytest.raises(InputError, match="tenants have no shares, and the workload names no tenants"):
        read_tenants({"a": {}}).applied(plain, seed=0)


def test_only_tenants_with_limits_have_quotas() -> None:
    assert not Tenancy((Tenant("a"),), np.zeros(1, np.int32)).has_quotas


def contents(table: RequestTable, row: int) -> list[int]:
    """The content id of each token of a prompt."""
    found: list[int] = []
    first = int(table.span_start[row])
    for span in range(first, first + int(table.span_count[row])):
        end = min(int(table.span_end[span]), int(table.prompt_tokens[row]))
        found += [int(table.span_content[span])] * (end - len(found))
    return found


def in_common(one: list[int], other: list[int]) -> int:
    """How many tokens both begin with."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


@pytest.mark.parametrize("preset", ["chat", "rag", "reasoning"])
def test_a_tenant_s_own_system_prompt_is_shared_by_its_users_alone(preset: str) -> None:
    """RAG begins with chunks that all users share; behind a prompt of their own they share them with their tenant."""
    tables = {"a": {"share": 0.5, "system_prompt_tokens": 3000}, "b": {"share": 0.3, "system_prompt_tokens": 9}}
    population = load_preset(preset)
    tenants = read_tenants(tables | {"c": {"share": 0.2}})
    own = replace(population, clients=replace(population.clients, tenants=tenants))
    base, limit = population.system_prompt_tokens, 8192
    drawn = own.draw(20, 3, seed=1, max_model_len=limit)
    table = own.of_tenants(drawn, seed=1)
    table.validate()
    assert table.tenancy is not None
    of = table.tenancy.of
    longer = np.array([3000 - base, 9 - base, 0])[of]
    np.testing.assert_array_equal(table.prompt_tokens, drawn.prompt_tokens + longer)
    assert (table.prompt_tokens + table.output_tokens <= limit).all()
    prompts, before = ([contents(each, row) for row in range(60)] for each in (table, drawn))
    for one, other in combinations(range(60), 2):
        common = in_common(prompts[one], prompts[other])
        shared = in_common(before[one], before[other]) + longer[one]
        assert common == (shared if of[one] == of[other] else 0)


def test_own_system_prompts_need_users_and_a_prompt_that_they_replace(tmp_path: Path) -> None:
    given = {"a": {"share": 1, "system_prompt_tokens": 100}}
    population = load_preset("chat")
    with pytest.raises(InputError, match="has no system prompt that a tenant's own could replace"):
        replace(population, system_prompt_tokens=0, clients=replace(population.clients, tenants=read_tenants(given)))
    with pytest.raises(ValueError, match="system_prompt_tokens of a tenant needs a population with users"):
        with_tenants(trace_of(tmp_path), given)
