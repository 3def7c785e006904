"""The image, the compose file and the chart: what they run is there, and they ask for no more rights than they need."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from files.cache.private_folder import private_folder
from headcount.cli.main import cli
from kvcache.models.catalog import find_gpu, load_model

ROOT = Path(__file__).parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
CHART = ROOT / "charts" / "headcount"


def instructions(name: str) -> list[str]:
    """The rest of each such line of the Dockerfile, joined where it goes on."""
    lines = re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


def parses(words: list[str]) -> None:
    """The command line takes these words."""
    context, command = click.Context(cli), cli.get_command(click.Context(cli), words[0])
    rest = words[1:]
    while isinstance(command, click.Group):
        command, rest = command.get_command(context, rest[0]), rest[1:]
    assert command is not None, words
    command.make_context(words[0], rest)


def test_every_command_of_the_image_parses() -> None:
    commands = [
        part for run in instructions("RUN") for part in re.split(r"&&", run) if part.strip().startswith("headc")
    ]
    assert len(commands) >= 4
    for command in commands:
        parses(shlex.split(command)[1:])


@pytest.mark.slow
def test_the_kernels_of_the_endpoint_are_compiled_without_serving(tmp_path: Path) -> None:
    (code,) = re.findall(r'python3 -c "([^"]+)"', " ".join(instructions("RUN")))
    own = {**os.environ, "HEADCOUNT_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", code], env=own, check=True, capture_output=True)
    assert list(tmp_path.rglob("simulator.core.fleet.advance-*.kernel"))


def test_the_image_gets_what_the_wheel_is_built_from_and_nothing_else() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    kept = {line[1:] for line in ignored if line.startswith("!")}
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert kept == {*packages, "pyproject.toml", "README.md", *project["project"]["license-files"]}
    assert "*" in ignored


def test_the_image_runs_without_root() -> None:
    (user,) = instructions("USER")
    assert int(user.partition(":")[0]) >= 1000, "a number, so that Kubernetes can tell that it is not root's"


@pytest.mark.parametrize("port", [8000, 8600])
def test_the_health_check_fails_unless_a_port_takes_connections(port: int) -> None:
    (check,) = instructions("HEALTHCHECK")
    code = json.loads(check.partition("CMD ")[2])[2]
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        free = server.getsockname()[1]
        command = [sys.executable, "-c", code.replace("(8000, 8600)", f"({free},)")]
        assert f"{port}" in code
        assert subprocess.run(command, check=False).returncode == 1
        server.listen()
        assert subprocess.run(command, check=False).returncode == 0


@pytest.mark.skipif(not shutil.which("sh") or sys.platform != "linux", reason="the image's shell")
@pytest.mark.parametrize("is_writable", [True, False])
def test_a_start_copies_kernels_to_the_cache_and_goes_on_without(is_writable: bool, tmp_path: Path) -> None:
    (entry,) = instructions("ENTRYPOINT")
    kernels, cache, scripts = (tmp_path / name for name in ("kernels", "cache", "bin"))
    for folder in (kernels / "digest", scripts):
        folder.mkdir(parents=True)
    (kernels / "digest" / "advance.kernel").write_text("code")
    (scripts / "headcount").write_text('#!/bin/sh\necho "$#:$1:$2"\n')
    (scripts / "headcount").chmod(0o755)
    shell, option, code, name = json.loads(entry)
    code = code.replace("/opt/headcount/cache/kernels", str(kernels))
    own = {"PATH": f"{scripts}:{os.environ['PATH']}", "HEADCOUNT_CACHE_DIR": str(cache) if is_writable else "/proc/x"}
    command = [shell, option, code, name, "plan", "two words"]
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("2:plan:two words\n", "")
    assert (cache / "kernels" / "digest" / "advance.kernel").exists() == is_writable
    if is_writable:
        private_folder(cache, "kernels", "digest")  # it raises where others might have written
        assert cache.stat().st_mode & 0o777 == 0o700


def test_the_services_of_the_compose_file_parse_and_have_few_rights() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert sorted(services) == ["emulate", "web"]
    for service in services.values():
        parses([re.sub(r"\$\{\w+:-([^}]+)\}", r"\1", word) for word in service["command"]])
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), "others are let in by a proxy"
        assert all(":?" in value for value in service["environment"].values()), "no token that everybody knows"


def test_the_chart_has_the_version_and_runs_what_parses() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert (chart["version"], chart["appVersion"]) == (version, version)
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for name in ("web", "emulate"):
        parses([name, "--port", str(values[name]["port"]), *values[name]["args"]])
    options = dict(zip(values["emulate"]["args"][::2], values["emulate"]["args"][1::2], strict=True))
    load_model(options["--model"])
    find_gpu(options["--gpu"])


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
@pytest.mark.parametrize("more", [[], ["--set", "emulate.enabled=true", "--set", "web.cache=answers"]], ids=str)
def test_the_chart_renders_objects_that_kubernetes_takes(more: list[str]) -> None:
    validator: Any = import_module("kubernetes_validate")
    command = ["helm", "template", "sizing", str(CHART), *more]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    objects = [each for each in yaml.safe_load_all(rendered) if each]
    assert len(objects) == (4 if more else 2), "a deployment and a service for each"
    for each in objects:
        validator.validate(each, "1.31", strict=True)
