"""The archives: what users install has every file, and building it again gives the same bytes."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PACKAGES = ("files", "kvcache", "workloads", "simulator", "calibrate", "conformance", "headcount")
LICENSED = re.compile(r"github\.com/([\w-]+/[\w.-]+)[^;\"(]{0,40}, (MIT|CC BY 4\.0|Apache-2\.0)")


def copied(to: Path) -> Path:
    """The files of the repository, as a fresh clone has them: nothing that git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        pytest.skip("not a clone")
    for name in filter(None, done.stdout.decode().split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, to / name)
    return to


def built(source: Path, out: Path, *targets: str) -> list[Path]:
    """The archives of a source folder, built without network at a fixed time."""
    pytest.importorskip("hatchling")
    wanted = [word for target in targets for word in ("--target", target)]
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(out), *wanted]
    fixed = {**os.environ, "SOURCE_DATE_EPOCH": "1700000000"}
    subprocess.run(command, cwd=source, env=fixed, capture_output=True, check=True)
    return sorted(out.iterdir())


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the sdist."""
    folder = tmp_path_factory.mktemp("first")
    wheel, sdist = built(copied(folder / "source"), folder / "dist", "wheel", "sdist")
    return wheel, sdist


@pytest.mark.slow
def test_building_again_elsewhere_and_later_gives_the_same_bytes(archives: tuple[Path, Path], tmp_path: Path) -> None:
    source = copied(tmp_path / "elsewhere" / "source")
    for path in source.rglob("*"):
        os.utime(path, (2_000_000_000, 2_000_000_000))
    again = built(source, tmp_path / "dist", "wheel", "sdist")
    assert [path.name for path in again] == [path.name for path in archives]
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in archives]


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(archives: tuple[Path, Path], tmp_path: Path) -> None:
    wheel, sdist = archives
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    (again,) = built(source, tmp_path / "dist", "wheel")
    assert again.read_bytes() == wheel.read_bytes()


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_packages_and_the_licences(archives: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(archives[0]) as wheel:
        names = set(wheel.namelist())
        about = message_from_bytes(wheel.read(f"headcount-{PROJECT['version']}.dist-info/METADATA"))
    files = {str(path.relative_to(ROOT)) for name in PACKAGES for path in (ROOT / name).rglob("*.*") if path.is_file()}
    missing = {name for name in files if "__pycache__" not in name and not name.endswith(".pyc")} - names
    assert missing == set()
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert about.get_all("License-File") == ["LICENSE", "NOTICE"]
    assert {f"headcount-{PROJECT['version']}.dist-info/licenses/{name}" for name in ("LICENSE", "NOTICE")} <= names


@pytest.mark.slow
def test_the_wheel_answers_outside_the_clone(archives: tuple[Path, Path], tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*pip, str(archives[0])], check=True, cwd=tmp_path)
    code = "import headcount.cli.main as main; print(main.__file__); main.main()"
    command = [sys.executable, "-c", code, "memory", "--model", "llama-3.1-8b", "--gpu", "h100-sxm"]
    alone = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, check=True)
    place, _, answer = done.stdout.partition("\n")
    assert Path(place).is_relative_to(tmp_path)
    assert "KV cache" in answer


def test_the_notice_names_every_data_set_that_figures_are_from() -> None:
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    told = {name: licence for line in notice.splitlines() for name, licence in re.findall(LINE, line)}
    found = {
        match
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.*")
        if path.suffix in (".toml", ".json", ".py")
        for match in LICENSED.findall(path.read_text(encoding="utf-8"))
    }
    assert len(found) > 5
    assert {(name, told.get(name)) for name, _ in found} == found


LINE = re.compile(r"github\.com/([\w-]+/[\w.-]+).*? (MIT|CC BY 4\.0|Apache-2\.0)$")


def test_the_releases_of_python_that_are_named_are_those_that_are_tested() -> None:
    hosted = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", each)]
    assert named == hosted["jobs"]["quick"]["strategy"]["matrix"]["python"]


def test_the_release_page_and_the_hosted_workflow_run_the_same_commands() -> None:
    page, workflow = (
        " ".join((ROOT / path).read_text(encoding="utf-8").split())
        for path in ("docs/how-to/make-a-release.md", ".github/workflows/release.yml")
    )
    (materials,) = re.findall(r"pipx run --spec cyclonedx-bom [^`]*? fresh", page)
    for command in ("export SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)", "pipx run build", materials):
        assert command in page
        assert command in workflow
