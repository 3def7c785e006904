"""`python -m conformance.components` tells a wrong interpreter in one line."""

import sys

import pytest

from conformance.components.__main__ import main


def test_an_interpreter_that_is_none_is_told_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["conformance", "kv-cache", "--python", "/nonexistent"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("conformance: /nonexistent is not a Python interpreter; give ")
