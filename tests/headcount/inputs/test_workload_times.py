"""`--spread-ticks`, `--splice`, `--stretch`, `--rate-scale`: a trace at other times, in every command."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from workloads.load import load_workload
from workloads.traces.trace import Trace

Run = Callable[..., Any]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.0,374,44\n2023-11-16 18:15:50.0,396,109\n"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--rate-scale", "0"), "rate x0; give 0.001 to 1000"),
        (("--rate-scale", "nan"), "is not a number"),
        (("--rate-scale", "0.1"), "leaves none of its 2 sessions"),
        (("--rate-scale", "1000", "--limit", "rows=1000"), "are more than 1,000"),
        (("--stretch", "-1"), "stretch x-1; give 0.001 to 1000"),
        (("--stretch", "1e9"), "stretch x1e+09; give 0.001 to 1000"),
        (("--splice", "no.csv"), "no.csv"),
        (("--spread-ticks",), "its times are not rounded to ticks"),
    ],
)
def test_what_cannot_be_done_is_told_in_one_line(
    headcount: Run, tmp_path: Path, options: tuple[str, ...], told: str
) -> None:
    trace, out = tmp_path / "a.csv", tmp_path / "b.csv"
    trace.write_text(AZURE)
    ran = headcount("workload", "convert", trace, out, *options)
    assert ran.code == 2
    assert told in ran.err and ran.err.count("\n") == 1
    assert not out.exists()


def test_converting_writes_the_changed_trace(headcount: Run, tmp_path: Path) -> None:
    one, two, out = (tmp_path / name for name in ("a.csv", "b.csv", "c.csv"))
    one.write_text(AZURE)
    two.write_text(AZURE.replace("374", "999"))
    assert headcount("workload", "convert", one, out, "--splice", two, "--stretch", 2).code == 0
    found = load_workload(out)
    assert isinstance(found, Trace)
    assert found.table.prompt_tokens.tolist() == [374, 396, 999, 396]
    assert found.table.arrival_s == pytest.approx([0, 8, 16, 24])
