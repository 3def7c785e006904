"""Which commands of a repository are taken, and how their answers are classified."""

from pathlib import Path

import pytest

from validation.pasted_commands import ANSWERED, CONFIG, NO_COMMAND, REFUSED, TOO_SMALL, ask, commands

RECIPE = """
model:
  model_id: llama-3.1-8b
  base_args: ["--max-model-len", 8192]
variants:
  - {name: two, extra_args: ["--tensor-parallel-size", 2]}
guide: |
  ```bash
  vllm serve llama-3.1-8b \\
    --max-model-len 4096
  curl localhost:8000/health
  ```
"""
MANIFEST = "kind: Pod\nspec:\n  containers: [{command: [vllm, serve, qwen3-8b]}]\n"


def test_commands_come_from_guides_recipes_and_manifests(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(RECIPE)
    (tmp_path / "b.yaml").write_text(MANIFEST)
    (tmp_path / "c.yaml").write_text(MANIFEST + "# {{ .Values.x }}\n")
    (tmp_path / "d.md").write_text("```sh\ndocker pull vllm/vllm-openai:v1 --x\nvllm serve qwen3-8b\n```\n")
    assert commands(tmp_path) == [
        "vllm serve llama-3.1-8b --max-model-len 8192",
        "vllm serve llama-3.1-8b --max-model-len 8192 --tensor-parallel-size 2",
        "vllm serve llama-3.1-8b \\\n  --max-model-len 4096",
        MANIFEST,
        "vllm serve qwen3-8b",
    ]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("vllm serve llama-3.1-8b --max-model-len 4096", ANSWERED),
        ("vllm serve llama-3.1-405b", TOO_SMALL),
        ("vllm serve someone/unknown-7b", CONFIG),
        ("vllm serve llama-3.1-8b --enable-lora", REFUSED),
        ("vllm serve llama-3.1-8b --max-model-len $LENGTH", NO_COMMAND),
        ("vllm serve ...", NO_COMMAND),
        ("vllm serve <MODEL>", NO_COMMAND),
    ],
)
def test_an_answer_is_told_from_a_refusal(command: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", [])
    assert ask(command, "h100-sxm")[0] == kind
