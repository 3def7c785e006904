"""What is read from files: bounded, without a wait, one clear line for each mistake."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from files.documents import json_values, parse_json, read_json, read_toml, read_yaml
from files.limits import Limits, limits, limits_raised, reference_rows
from files.reading import InputError, read_text, text_lines

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.slow
@given(JSON)
def test_every_json_value_comes_back_as_it_was_written(value: object) -> None:
    assert parse_json(json.dumps(value), "here") == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_in_one_line(tmp_path_factory: pytest.TempPathFactory, raw: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(raw)
    for read in (read_json, read_toml, read_yaml):
        try:
            read(path)
        except InputError as error:
            assert str(path) in str(error) and "\n" not in str(error)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"a": 1, "a": 2}', "'a' is given twice"),
        ("[" * 60 + "]" * 60, "more than 50 levels within one another (limit nesting; --limit nesting=N raises it)"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a": ' + "1" * 5000 + "}", "a number of thousands of digits"),
        (r'{"a": "\ud800"}', "it holds half a character"),
        ('{\n"a": }', "line 2, column 6: is not JSON"),
        ('{"a": [1', "column 9: is not JSON: it is empty or cut off; write or copy it again"),
    ],
)
def test_json_that_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_json(path)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: 1\na: 2", "'a' is given twice"),
        ("a: &a [*a]", "more than 50 levels"),
        ("a: !!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("a: 2020-99-99", "month must be in 1..12"),
        (
            "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n"
            + "\n".join(f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)),
            "its aliases repeat more than 10,000,000 values (limit values",
        ),
    ],
)
def test_yaml_that_cannot_be_used_is_refused(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_yaml(path)
    assert told in str(error.value)


def test_yaml_that_is_nested_deeper_than_its_loader_bears_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    for text in ("[" * 200_000, "- " * 200_000, "{a: " * 200_000):
        path.write_text(text)
        with pytest.raises(InputError, match="more than 50 levels"):
            read_yaml(path)


def test_yaml_s_merge_keys_cannot_repeat_without_end(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    merged = [f"a{i}: &a{i} {{<<: [{', '.join([f'*a{i - 1}'] * 10)}]}}" for i in range(1, 12)]
    path.write_text("\n".join(["a0: &a0 {x: 1}", *merged]))
    assert read_yaml(path) == {f"a{i}": {"x": 1} for i in range(12)}  # PyYAML merges equal keys once since 6.0.4


def test_values_that_follow_one_another_come_with_their_lines() -> None:
    assert list(json_values('\n{"a": 1}\n\n[2,\n3] 4\n', "here")) == [(2, {"a": 1}), (4, [2, 3]), (5, 4)]
    with pytest.raises(InputError, match="here, line 2, column 2: is not JSON: it is empty or cut off"):
        list(json_values('{}\n{"a', "here"))
    many = json_values("[" + "1," * 12_000_000 + "1]", "here")  # more than a YAML file may hold
    assert len(next(many)[1]) == 12_000_001


@pytest.mark.parametrize("text", ["a = 1\na = 2", "a = " + "[" * 5000, "a = " + "1" * 6000, "a = "])
def test_toml_that_cannot_be_used_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.toml"
    path.write_text(text)
    with pytest.raises(InputError, match="is not readable as TOML"):
        read_toml(path)


def test_pipes_devices_and_folders_are_refused_without_being_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # to open it would wait for a writer
    for path, what in ((pipe, "a pipe or a device"), (Path("/dev/zero"), "a pipe or a device"), (tmp_path, "a folder")):
        with pytest.raises(InputError, match=f"is {what}; give an ordinary file"):
            read_text(path)
        with pytest.raises(InputError, match=f"is {what}"), text_lines(path):
            pass


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc")
def test_files_of_the_kernel_are_refused_since_some_never_end() -> None:
    with pytest.raises(InputError, match="is a file of the kernel; give an ordinary file"):
        read_text(Path("/proc/self/status"))


def test_a_file_is_read_up_to_its_limit_which_can_be_raised(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(b" " * 17_000_000)
    packed.write_bytes(gzip.compress(b" " * 17_000_000))
    for path in (plain, packed):
        with pytest.raises(InputError, match=r"larger than 16,000,000 bytes .limit settings_bytes"):
            read_text(path)
        with limits_raised(settings_bytes=20e6):
            assert len(read_text(path)) == 17_000_000


def test_gzip_that_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress(b"hello" * 100)[:-9])
    with pytest.raises(InputError, match="cut off or damaged"):
        read_text(path)


def test_limits_hold_again_after_they_were_raised_and_say_why_they_are_there() -> None:
    with limits_raised(turns=20_000):
        assert limits().turns == 20_000
    assert limits() == Limits()
    assert all(why for _, _, why in reference_rows())
    for wrong in ({"turn": 3.0}, {"turns": 0.0}, {"turns": float("nan")}):
        with pytest.raises(ValueError, match=r"did you mean 'turns'|give a number above 0"), limits_raised(**wrong):
            pass
