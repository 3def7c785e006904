"""Files named instead of a pasted serve command, and what of their manifests is not read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.mark.parametrize("name", ["compose.yaml", "serve.sh", "@anything"])
def test_a_file_that_holds_the_command_is_named_instead(
    headcount: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "vllm serve Qwen/Qwen3-8B --max-model-len 16384"
    (tmp_path / name.removeprefix("@")).write_text(
        f"services:\n  vllm:\n    image: vllm/vllm-openai:v0.12.0\n    command: {line}\n" if "yaml" in name else line
    )
    named = headcount("memory", "--gpu", "h100-sxm", "--vllm-args", name)
    assert named.code == 0, named.err
    release = ("--vllm-version", "0.12.0") if "yaml" in name else ()
    assert named.out == headcount("memory", "--gpu", "h100-sxm", "--vllm-args", line, *release).out


@pytest.mark.parametrize("replicas", [1, 4])
def test_replicas_that_are_not_read_are_said(headcount: Run, caplog: pytest.LogCaptureFixture, replicas: int) -> None:
    text = f"""
apiVersion: apps/v1
kind: Deployment
spec:
  replicas: {replicas}
  template:
    spec:
      containers:
      - image: vllm/vllm-openai:v0.12.0
        args: ["--model", "Qwen/Qwen3-8B", "--max-model-len", "16384"]
"""
    assert headcount("memory", "--gpu", "h100-sxm", "--vllm-args", text).code == 0
    assert ("runs 4 replicas" in caplog.text) == (replicas == 4)


@pytest.mark.parametrize("name", ["nothere.yaml", "@nothere"])
def test_a_file_that_is_not_there_is_said_to_be_missing(headcount: Run, name: str) -> None:
    refused = headcount("memory", "--gpu", "h100-sxm", "--vllm-args", name)
    assert refused.code == 2
    assert "there is no file nothere" in refused.err
