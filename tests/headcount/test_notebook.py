"""The sliders of a notebook: each is an input of `capacity`, and a new place is a new answer."""

import builtins
from typing import Any

import pytest

import headcount as hc
from headcount import notebook as module

pytest.importorskip("ipywidgets", reason="sliders need the extra [notebook]")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What `capacity` is asked; its answers are texts."""
    calls: list[dict[str, Any]] = []

    def capacity(model: str, gpu: str, **given: Any) -> str:
        calls.append(given)
        if given["tpot_s"] < 0.02:
            raise hc.HeadcountError("no number of users meets TPOT <= 10 ms")
        return f"{model} on {given['gpus'][0]} {gpu}"

    monkeypatch.setattr(module, "capacity", capacity)
    return calls


def by_label(shown: Any) -> dict[str, Any]:
    return {each.description: each for each in shown.children[:-1]}


def test_a_moved_slider_asks_with_its_new_place(asked: list[dict[str, Any]]) -> None:
    shown = hc.sliders("llama-3.1-8b", "h100-sxm", gpus=[1, 2], workload="rag", ttft_s=3.0)
    shown.update()
    assert shown.result == "llama-3.1-8b on 1 h100-sxm"
    first = {"workload": "rag", "gpus": [1], "context_scale": 1.0, "ttft_s": 3.0, "tpot_s": 0.05}
    assert asked[-1] == first
    by_label(shown)["GPUs"].value = 2
    assert shown.result == "llama-3.1-8b on 2 h100-sxm"
    by_label(shown)["context"].value = 2.0
    assert asked[-1] == first | {"gpus": [2], "context_scale": 2.0}


def test_what_is_refused_is_said_in_place_of_an_answer(asked: list[dict[str, Any]]) -> None:
    shown = hc.sliders("llama-3.1-8b", "h100-sxm")
    by_label(shown)["TPOT at most"].value = 0.01
    assert shown.result == "no number of users meets TPOT <= 10 ms" and asked


def test_without_ipywidgets_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name == "ipywidgets":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(hc.HeadcountError, match=r"pip install 'headcount\[notebook\]'"):
        hc.sliders("llama-3.1-8b", "h100-sxm")
