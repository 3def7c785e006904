"""A recording that was damaged is told with file, place and value, whoever reads it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from calibrate.fit.inputs import read_inputs
from calibrate.record.recording_files import read_recording
from calibrate.record.watch_server import read_server_recording
from files.reading import InputError

RECORDED = Path(__file__).parents[1] / "recordings" / "cpu-small"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RECORDED, tmp_path / "recording"))


def told(folder: Path) -> str:
    with pytest.raises(InputError) as error:
        read_inputs([folder])
    message = str(error.value)
    assert str(folder) in message and "\n" not in message
    return message


def change(folder: Path, *way: Any) -> None:
    """Puts the last of `way` where the others lead, or takes it away."""
    path = folder / "recording.json"
    content = inner = json.loads(path.read_text(encoding="utf-8"))
    *steps, last, new = way
    for step in steps:
        inner = inner[step]
    if new is ...:
        del inner[last]
    else:
        inner[last] = new
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.mark.parametrize(
    ("way", "message"),
    [
        (("loads", ...), "recording.json: 'loads' is missing"),
        (("loads", {}), "recording.json: loads is a table; it must be a list"),
        (("loads", 0, "load", []), "recording.json: loads[1].load is an empty list; it must be a table"),
        (("loads", 0, "load", "name", "../../x"), "loads[1].load.name is '../../x'; it must be a name of letters"),
        (("loads", 0, "load", "phases", 0, "add", 0, -5), "phases[1].add[1] is -5; it must be a whole number"),
        (("loads", 0, "status", "gone"), "loads[1].status"),
        (("loads", 0, "expected_s", float("nan")), "loads[1].expected_s is nan; it must be a number, at least 0"),
        (("warm_up_steps", None), "warm_up_steps is nothing; it must be a whole number"),
        (("options", []), "options is an empty list; it must be a table"),
        (("options", "tensor_parallel_size", [2]), "options.tensor_parallel_size is a list of 1; it must be a whole"),
        (("options", "model", 10**400), "options.model is 1000"),
        (("environment", ...), "recording.json: 'environment' is missing"),
        (("environment", "num_gpu_blocks", "many"), "environment.num_gpu_blocks is 'many'; it must be a whole number"),
        (("environment", "experts", "all"), "environment.experts is 'all'; it must be one of evenly"),
        (("kind", "server metrics"), "'url' is missing; give it"),
        (("kind", "dreams"), "is not a recording of engine steps but of dreams"),
        (("schema_version", 2), "is not a recording of engine steps"),
    ],
)
def test_a_wrong_or_missing_key_is_told(way: Any, message: str, folder: Path) -> None:
    change(folder, *way)
    assert message in told(folder)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is not JSON: it is empty or cut off"),
        ("[]", "it is an empty list; it must be a table"),
        ('{"loads": [', "is not JSON: it is empty or cut off"),
        ("[" * 100_000, "nested too deeply"),
        ("\0", "not a text file"),
    ],
)
def test_a_file_that_was_cut_off_is_told(content: str, message: str, folder: Path) -> None:
    (folder / "recording.json").write_text(content, encoding="utf-8")
    assert message in told(folder)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        (1, "soon", "line 3: cycle_s is soon; it must be a number, at least 0"),
        (1, "-1", "line 3: cycle_s is -1.0; it must be"),
        (1, "inf", "line 3: cycle_s is inf; it must be"),
        (3, "nan", "line 3: tokens is nan; it must be"),
        (4, "1e300", "line 3: sequences is 1e+300; it must be"),
        (0, "", "line 3: start_s is nan; it must be"),
        (12, "x", "line 3: phase is x; it must be"),
    ],
)
def test_a_step_with_a_value_that_no_step_has_is_told_with_its_line(
    column: int, value: str, message: str, folder: Path
) -> None:
    path = min((folder / "steps").glob("*.csv"))
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = lines[2].split(",")
    cells[column] = value
    path.write_text("\n".join([*lines[:2], ",".join(cells), *lines[3:]]), encoding="utf-8")
    assert message in told(folder)


@pytest.mark.parametrize("content", ["", "\n\n", '"', "a,b\n1", "\0", "start_s,cycle_s\n1,2,3,4\n5"])
def test_steps_that_are_no_table_are_told(content: str, folder: Path) -> None:
    min((folder / "steps").glob("*.csv")).write_text(content, encoding="utf-8")
    told(folder)


def test_a_step_whose_time_was_not_measured_is_kept(folder: Path) -> None:
    path = min((folder / "steps").glob("*.csv"))
    lines = path.read_text(encoding="utf-8").splitlines()
    start_s, _, rest = lines[2].split(",", 2)
    path.write_text("\n".join([*lines[:2], f"{start_s},,{rest}", *lines[3:]]), encoding="utf-8")
    assert (
        read_recording(folder).steps["cycle_s"].isna().sum()
        == read_recording(RECORDED).steps["cycle_s"].isna().sum() + 1
    )


def test_an_option_that_names_code_is_not_taken_over(folder: Path) -> None:
    change(folder, "options", "latency_model", "os:getcwd")
    assert "latency_model" not in read_recording(folder).options


def test_paths_that_cannot_be_are_told(tmp_path: Path) -> None:
    for path in (tmp_path / "nowhere", tmp_path / ("x" * 5000), Path("a\0b")):
        with pytest.raises(InputError, match="cannot be read"):
            read_inputs([path])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("# headcount: at soon\n# headcount: end\n", "line 1: 'soon' is not a time in seconds since 1970"),
        ("\n# headcount: at nan\n# headcount: end\n", "line 2: 'nan' is not a time"),
        ("# headcount: at 1e400\n# headcount: end\n", "line 1: '1e400' is not a time"),
        ("# headcount: at 1\nvllm:a 1\n", "holds no complete snapshot"),
        ("", "holds no complete snapshot"),
    ],
)
def test_snapshots_of_a_server_that_were_damaged_are_told(content: str | None, message: str, tmp_path: Path) -> None:
    head = {"schema_version": 1, "kind": "server metrics", "url": "http://a/metrics", "begin_unix_s": 1.0}
    (tmp_path / "recording.json").write_text(json.dumps(head), encoding="utf-8")
    if content is not None:
        (tmp_path / "metrics.txt").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_server_recording(tmp_path)
