"""How long clients wait, from files and from changes of traffic."""

import math
from pathlib import Path

import numpy as np
import pytest

from files.reading import InputError
from headcount.inputs.reading.traffic import read_traffic
from workloads.client_changes import changed_clients
from workloads.clients import LIBRARY_RETRIES, LIBRARY_TIMEOUT_S, WAIT_FOR_EVER, Clients, Library
from workloads.distributions import Exponential
from workloads.load import load_preset, load_workload
from workloads.populations.population import Population
from workloads.requests import independent_requests
from workloads.traces.trace import Trace
from workloads.traffic import changed, changed_trace

CHAT = load_preset("chat")
HASTY = """extends = "chat"
[patience_s]
kind = "lognormal"
median = 20
sigma = 1.0
source = "our log"
[client]
timeout_s = 60
retries = 1
abandons_session = true
source = "our gateway"
"""


def hasty(folder: Path, text: str = HASTY) -> Population:
    path = folder / "hasty.toml"
    path.write_text(text, encoding="utf-8")
    found = load_workload(path)
    assert isinstance(found, Population)
    return found


def test_presets_wait_for_ever() -> None:
    assert CHAT.clients == WAIT_FOR_EVER


def test_a_file_says_how_long_its_users_and_their_clients_wait(tmp_path: Path) -> None:
    clients = hasty(tmp_path).clients
    assert clients is not None and clients.patience_s is not None
    assert clients.patience_s.quantile(np.array([0.5]))[0] == pytest.approx(20)
    assert (clients.library.timeout_s, clients.library.num_retries) == (60, 1)
    assert clients.library.abandons_session


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timeout_s = 0", "client.timeout_s is 0; it must be a time in seconds above 0"),
        ("retries = 11", "client.retries is 11; it must be a whole number from 0 to 10"),
        ("jitter = 1.5", "client.jitter is 1.5; it must be a share from 0 to 1"),
        ("backoff_s = -1", "client.backoff_s is -1"),
        ("timeout = 5", "no key 'timeout' in client; did you mean 'timeout_s'?"),
        ("[patience_s]\nkind = 'fixed'\nvalue = 0", "patience_s is always 0; give a mean above 0"),
    ],
)
def test_what_is_no_client_is_refused_with_its_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError) as refused:
        hasty(tmp_path, f'extends = "chat"\n[client]\n{text}\n')
    assert said in str(refused.value)


def test_a_mean_patience_is_exponential_and_keeps_the_shape_that_a_file_has(tmp_path: Path) -> None:
    found = changed(CHAT, read_traffic("patience=20s")).clients
    assert found == Clients(patience_s=Exponential(mean_value=20))
    mine = changed(hasty(tmp_path), read_traffic("patience=x2")).clients
    assert mine is not None and mine.patience_s is not None
    assert mine.patience_s.quantile(np.array([0.5]))[0] == pytest.approx(40)


def test_a_time_out_is_retried_as_openai_python_does_it_and_retries_alone_have_its_time_out() -> None:
    timed = changed_clients(read_traffic("client-timeout=60s"), "--rate")
    assert (timed.library.timeout_s, timed.library.num_retries) == (60, LIBRARY_RETRIES)
    retried = changed_clients(read_traffic("retries=5"), "--rate")
    assert (retried.library.timeout_s, retried.library.num_retries) == (LIBRARY_TIMEOUT_S, 5)
    assert changed_clients(read_traffic("retries=0,client-timeout=60s"), "--rate").library.num_retries == 0


def test_the_back_offs_are_those_of_openai_python() -> None:
    """0.5 s, doubled up to 8 s, each up to a quarter shorter."""
    library = Library(timeout_s=1, retries=6)
    longest = [library.backoffs_s(number, np.zeros(1))[0] for number in range(6)]
    assert longest == [0.5, 1, 2, 4, 8, 8]
    assert library.backoffs_s(0, np.ones(1))[0] == 0.375


def test_the_requests_of_a_trace_are_as_impatient_as_users() -> None:
    table = independent_requests(arrival_s=np.arange(100.0), prompt_tokens=np.ones(100), output_tokens=np.ones(100))
    trace = changed_trace(Trace(name="made", format="", table=table, source=""), read_traffic("patience=20s,retries=1"))
    waits = trace.clients.applied(table, 0).waits
    assert waits is not None and 10 < waits.patience_s.mean() < 40
    assert waits.backoff_s.shape == (1, 100)
    assert ((waits.backoff_s > 0.375) & (waits.backoff_s <= 0.5)).all()


def test_clients_that_wait_for_ever_leave_the_table_as_it_is() -> None:
    table = independent_requests(arrival_s=[0.0], prompt_tokens=[1], output_tokens=[1])
    assert Clients().applied(table, 0) is table
    assert Clients(library=Library(timeout_s=math.inf, retries=3)).applied(table, 0) is table


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("patience=x2", "everybody waits forever; give a mean time"),
        ("patience=0s", "give a time above 0"),
        ("client-timeout=x2", "there is none; give a time"),
        ("client-timeout=0s", "give a time above 0"),
        ("retries=x2", "give a whole number from 0 to 10"),
        ("context=x2", "context cannot be changed with --rate; it takes patience, client-timeout, retries"),
    ],
)
def test_what_changes_no_client_is_refused(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        changed_clients(read_traffic(text), "--rate")
