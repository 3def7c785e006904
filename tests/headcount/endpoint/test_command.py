"""`headcount emulate` from its command line to an endpoint that is about to listen."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import pytest

from headcount.endpoint import serving

pytest.importorskip("uvicorn")


@pytest.fixture
def asked_by(monkeypatch: pytest.MonkeyPatch, headcount: Callable[..., Any]) -> Callable[..., serving.Served]:
    """`asked_by("--seed", 7)`: what the command asks an endpoint for; the server stops at once."""
    asked: list[serving.Served] = []
    built = serving.endpoint

    @wraps(built)
    def endpoint(model: str, gpu: str, served: serving.Served, *given: Any, **more: Any) -> object:
        asked.append(served)
        return built(model, gpu, served, *given, **more)

    def run(*options: object) -> serving.Served:
        monkeypatch.setattr(serving, "endpoint", endpoint)
        monkeypatch.setattr("uvicorn.Server.run", lambda self, sockets: None)
        done = headcount("emulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--port", 18999, *options)
        assert done.code == 0, done.err
        assert "at http://127.0.0.1:18999/v1" in done.out
        return asked[-1]

    return run


def test_options_that_are_not_given_have_their_defaults(asked_by: Callable[..., serving.Served]) -> None:
    assert asked_by() == serving.Served()


def test_options_reach_the_endpoint(asked_by: Callable[..., serving.Served]) -> None:
    served = asked_by(
        "--replicas", 2, "--seed", 7, "--speed", 10, "--output-len", 20, "--max-concurrent", 5, "--max-body", "1M",
        "--api-key", "k", "--router", "round-robin", "--workload", "code",
    )  # fmt: skip
    assert served == serving.Served(
        replicas=2, seed=7, speed=10, output_len=20, max_concurrent=5, max_body=1_000_000, api_key="k",
        router="round-robin", workload="code",
    )  # fmt: skip
