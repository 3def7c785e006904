"""What Python code hands over is of the types that the signature says, or is told by name."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import headcount as hc
from files.arguments import check_argument


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int), (np.int64(3), int), (3, float), (np.float64(0.5), float), (float("inf"), float), (True, bool),
        ("a", str), (Path("a"), str | Path), (None, int | None), ([1, 2], Sequence[int]), ((), tuple[int, ...]),
        (np.array([1, 2]), Sequence[int]), (("a", 1), tuple[str, int]), ({"a": 1}, Mapping[str, Any]),
        (print, Callable[..., Any]), (int, str | Callable[[int], Any]), (np.zeros(2), NDArray[np.float64]), ([], Any),
    ],
)  # fmt: skip
def test_a_right_value_passes(value: object, hint: Any) -> None:
    check_argument("it", value, hint)


@pytest.mark.parametrize(
    ("value", "hint", "told"),
    [
        ("x", int, "seed is 'x'; it must be a whole number"),
        (True, int, "seed is True; it must be a whole number"),
        (1.0, int, "seed is 1.0; it must be a whole number"),
        (float("nan"), float, "seed is nan; it must be a number"),
        (3, bool, "seed is 3; it must be True or False"),
        ("ab", Sequence[str], "seed is 'ab'; it must be a list, each text"),
        ([1, "2"], Sequence[int], "seed is [1, '2']; it must be a list, each a whole number"),
        ("1s", float | None, "seed is '1s'; it must be a number or None"),
        ([1], NDArray[np.float64], "seed is [1]; it must be a ndarray"),
        (object(), str, "seed is a value of type object; it must be text"),
        ("x" * 1000, int, f"seed is '{'x' * 58}…; it must be a whole number"),
    ],
)
def test_a_wrong_value_is_told_by_name(value: object, hint: Any, told: str) -> None:
    with pytest.raises(ValueError) as error:
        check_argument("seed", value, hint)
    assert str(error.value) == told


ON: tuple[Any, Any] = ("llama-3.1-8b", "h100-sxm")


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: hc.load_model(None), "name_or_path is None; it must be text or a Path"),  # type: ignore[arg-type]
        (lambda: hc.load_model([]), "name_or_path is []; it must be text or a Path"),  # type: ignore[arg-type]
        (lambda: hc.load_model("x" * 100_000), f"no model '{'x' * 79}…'; "),
        (lambda: hc.load_model(f"/{'x' * 100_000}"), f"no file '/{'x' * 298}…'; give"),
        (lambda: hc.check([], model=ON[0], gpu=ON[1]), "paths is empty; give at least one measured run"),
        (lambda: hc.read([]), "paths is empty; give at least one file"),
        (lambda: hc.memory_comparison(*ON, mean_context=0), "mean_context has 0; give whole numbers above 0"),
        (lambda: hc.SLO(ttft_s="1"), "ttft_s is '1'; it must be a number or None"),  # type: ignore[arg-type]
        (lambda: hc.SLO(attainment=None), "attainment is None; it must be a number"),  # type: ignore[arg-type]
        (lambda: hc.resolve(*ON, max_cudagraph_capture_size=-1), "max_cudagraph_capture_size is -1, must be at"),
        (lambda: hc.resolve(*ON, max_cudagraph_capture_size=1.5), "max_cudagraph_capture_size is 1.5; it must be"),
        (lambda: hc.resolve(*ON, max_cudagraph_capture_size={}), "max_cudagraph_capture_size is {}; it must be"),
        (lambda: hc.resolve(*ON, tensor_paralel_size=2), "no engine argument 'tensor_paralel_size'; did you mean"),
        (lambda: hc.resolve(*ON, latency_profile="p.toml"), "p.toml cannot be read: no such file"),
        (lambda: hc.memory(*ON, **{"\x1b[31m": 1}), "no engine argument '?[31m'; known: "),
        (lambda: hc.memory(*ON, **{"x" * 1000: 1}), f"no engine argument '{'x' * 59}…'; known: "),
        (lambda: hc.training_memory(*ON, micro_batch_size=10**400), "micro_batch_size holds a whole number of too"),
        (lambda: hc.training_memory(*ON, zeroo=1), "no training setting 'zeroo'; "),
        (lambda: hc.read_startup_log("server.log"), "server.log cannot be read: no such file"),
    ],
)
def test_a_wrong_argument_of_a_question_is_told(ask: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError) as error:
        ask()
    assert str(error.value).startswith(told)


def test_a_path_is_a_model_and_a_number_of_numpy_s_a_number(tmp_path: Path) -> None:
    config = '{"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 9'
    (tmp_path / "config.json").write_text(config + ', "vocab_size": 1000}', encoding="utf-8")
    assert hc.load_model(tmp_path / "config.json").num_hidden_layers == 3
    assert hc.training_memory(*ON, num_gpus=np.int64(8)).to_json()["fits"]
