"""The code keeps its own rules."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parent.parent
PACKAGES = ("files", "kvcache", "workloads", "simulator", "calibrate", "conformance", "headcount")
SOURCES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def run(*command: str) -> None:
    done = subprocess.run([*command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_ruff_finds_nothing() -> None:
    run(tool("ruff"), "check", ".")


def test_ruff_would_format_nothing() -> None:
    run(tool("ruff"), "format", "--check", ".")


def test_strict_mypy_finds_nothing() -> None:
    run(tool("mypy"))


def test_imports_point_one_way() -> None:
    run(tool("lint-imports"), "--no-logo")


@pytest.mark.slow
def test_no_engine_is_imported_in_the_product() -> None:
    for path in SOURCES:
        if path.parent.name == "probes":  # another interpreter runs these
            continue
        imported = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else []
            )
        }
        assert not imported & {"vllm", "sglang", "torch"}, path


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_says_in_one_sentence_what_it_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if not text.strip():
        return
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, f"{path} has no docstring"
    first = docstring.splitlines()[0]
    assert first.endswith((".", "?")), first


def test_no_other_distribution_owns_one_of_the_flat_package_names() -> None:
    for distribution in distributions():
        if distribution.metadata["Name"] == "headcount":
            continue
        tops = {file.parts[0] for file in distribution.files or () if len(file.parts) > 1}
        assert not tops & set(PACKAGES), f"{distribution.metadata['Name']} installs {tops & set(PACKAGES)} too"


def test_ci_runs_the_readme_s_test_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if line.rstrip().endswith("-m pytest"))
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    hosted = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    ran = {name: [step.get("run", "").strip() for step in job["steps"]] for name, job in hosted.items()}
    assert command in ran["quick"]
    assert ".ci/run" in ran["slow"]
    assert command.partition(" && .venv/bin/python")[0] in ran["lint"]


def test_the_version_is_stated_once_more_only_where_it_is_equal() -> None:
    import headcount  # noqa: PLC0415

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert headcount.__version__ == project["version"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == project["version"]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^## {re.escape(project['version'])}\b", changelog, re.MULTILINE)
