"""Server commands of a public repository, asked as people paste them: how many are answered, and why others are not.

    python -m validation.pasted_commands CLONE [--gpu NAME] [--show CLASS]

CLONE is a clone of it. Taken are commands in fences of Markdown and of texts in YAML, argument lists of
vllm-project/recipes, and YAML documents that start a server; templates with `{{` are not.
"""

import argparse
import io
import re
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Final

from files.documents import parse_yaml
from headcount.cli import main as cli

_FENCE: Final = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
_SERVES: Final = re.compile(
    r"vllm serve +\S|vllm\.entrypoints\.openai\.api_server|vllm/vllm-openai\S* .*(--|\S+/\S+)", re.DOTALL
)
_STARTS: Final = re.compile(r"vllm[\s\"',-]+serve|vllm\.entrypoints|vllm-openai|llm-d-cuda|modelURL")
_DOCKER: Final = re.compile(r"docker (pull|build|push|tag|inspect)")
_LISTS: Final = ("args", "extra_args", "base_args", "vllm_args")
ANSWERED, TOO_SMALL, CONFIG, REFUSED, NO_COMMAND = CLASSES = (
    "answered",
    "answered: it does not fit on one such GPU, or does not start",
    "the model's config.json is needed, as the message says",
    "refused: it changes the answer and is not simulated",
    "no whole command: placeholders, unset variables, no server",
)
_REASONS: Final = (  # the first that its message has
    (TOO_SMALL, r"does not fit on|does not start|can not start"),
    (NO_COMMAND, r"'[<$][^']*'|\$\{|is empty; paste|Missing option|is not JSON|quote is left open"),
    (CONFIG, r"no model '|no file '"),
)


def commands(clone: Path) -> list[str]:
    """Each once, in the order of the files' names."""
    found: dict[str, None] = {}
    for path in sorted(path for path in clone.rglob("*") if path.suffix in (".md", ".yaml", ".yml") and path.is_file()):
        text = path.read_text(encoding="utf-8", errors="replace")
        for command in _of_markdown(text) if path.suffix == ".md" else _of_yaml(text):
            found.setdefault(command)
    return list(found)


def _of_markdown(text: str) -> Iterator[str]:
    for fence in _FENCE.findall(text):
        for command in re.split(r"(?<!\\)\n", fence):
            if _SERVES.search(command) and not _DOCKER.search(command) and not command.strip().startswith("#"):
                yield command.strip()


def _of_yaml(text: str) -> Iterator[str]:
    try:
        document = parse_yaml(text, "the file")
    except ValueError:
        document = None
    model = document.get("model") if isinstance(document, dict) else None
    if isinstance(model, dict) and "model_id" in model:
        base = [str(each) for each in model.get("base_args") or []]
        for key, value in _lists(document):
            own = [] if key == "base_args" else [str(each) for each in value]
            yield f"vllm serve {model['model_id']} {shlex.join([*base, *own])}"
        for inner in _texts(document):
            yield from _of_markdown(inner)
    elif _STARTS.search(text) and "{{" not in text:
        yield text


def _lists(value: object) -> Iterator[tuple[str, list[object]]]:
    for key, each in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else []):
        if key in _LISTS and isinstance(each, list):
            yield str(key), each
        else:
            yield from _lists(each)


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _texts(each)


def ask(command: str, gpu: str) -> tuple[str, str]:
    """The class of a command's answer, and what was said of it."""
    out, err = io.StringIO(), io.StringIO()
    sys.argv = ["headcount", "memory", "--vllm-args", command, "--gpu", gpu, "--json"]
    with redirect_stdout(out), redirect_stderr(err):
        try:
            cli.main()
        except SystemExit as left:
            code = left.code
    if code in (0, 1):
        return ANSWERED, ""
    said = err.getvalue().strip()
    return next((name for name, pattern in _REASONS if re.search(pattern, said)), REFUSED), said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("--gpu", default="b300-sxm")
    parser.add_argument("--show", choices=CLASSES, help="print what was said of the commands of this class")
    asked = parser.parse_args()
    found = [(command, *ask(command, asked.gpu)) for command in commands(asked.clone)]
    counts = Counter(kind for _, kind, _ in found)
    for kind in CLASSES:
        print(f"{counts[kind]:6,}  {kind}")
    for command, kind, said in found:
        if kind == asked.show:
            print(f"\n{command}\n→ {said.splitlines()[-1]}")


if __name__ == "__main__":
    main()
