"""What `headcount calibrate` says of input that it cannot use."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "cannot be read"), ("{", "is not JSON"), ("[]", "holds no JSON object"), ("{}", "is no result of")],
)
def test_a_file_that_is_no_result_is_told(
    headcount: Callable[..., Any], text: str | None, told: str, tmp_path: Path
) -> None:
    path, out = tmp_path / "result.json", tmp_path / "page.md"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    ran = headcount("calibrate", "fidelity-report", path, "--out", out)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["check-engine", "--attention", "linear"], "'linear' is neither of full, hybrid"),
        (["check-engine", "--python", "/nowhere/python"], "/nowhere/python"),
        (["check-scheduler", "--cases", "0"], "0 is not in the range"),
    ],
)
def test_a_wrong_argument_is_told(headcount: Callable[..., Any], arguments: list[str], told: str) -> None:
    ran = headcount("calibrate", *arguments)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert told in ran.err
