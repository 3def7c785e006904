"""What users read is in the field's words: none of the words that the project made up for itself."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from headcount.cli.main import cli

ROOT: Final = Path(__file__).parents[1]
WORDS: Final = {  # a word of our own, as a regular expression: what the field says
    r"safe to promise|(per|/) ?safe user|safely serves?|can be promised": "users at 95 % confidence",
    r"best estimate": "expected users",
    r"19 of 20|1 of 20|9 of 10|nine in ten": "95 % or 90 %",
    r"what binds|\bbinds\b": "bottleneck",
    r"what lifts|--lifts": "suggestions, --suggest",
    r"KV in host memory|host tier|host memory": "CPU KV-cache offloading, CPU memory",
    r"KV store\b": "remote KV cache",
    r"\bhandovers?\b": "KV transfer",
    r"prefill and decode apart|pools apart|prefill and decode are apart": "disaggregated prefill/decode",
    r"fleets that change": "autoscaling and failures",
    r"unlike (pools|GPUs)": "heterogeneous pools",
    r"attention replicas?|attention-parallel": "data-parallel (DP) rank",
    r"\b(a|the) mixture('s)?\b(?! of)": "MoE",
    r"(models?|layers?) with (a )?states?\b": "SSM / linear-attention state",
    r"\bdrafted tokens|\bdrafts\b(?! or| with| a)": "draft tokens, speculative decoding",
    r"\blooked at\b": "screened, candidates",
    r"(laid|stands?|measured|simulated|not simulated) beside": "compared with, together with",
    r"\bkept answers?\b|answer that was kept": "saved answer",
    r"how sure": "confidence",
    r"(the|report's) first page": "summary",
    r"readable twin": "reference implementation",
    r"way back to the client": "response streaming",
    r"for ever\b": "forever, no limit",
    r"the wish\b": "scale-up request",
    r"who signs|to sign\b|signed for": "who decides",
    r"as (fast|it) (as it )?should be": "as expected",
}
PROGRAM: Final = ("headcount", "simulator", "kvcache", "calibrate", "workloads", "files", "conformance")

FENCED: Final = re.compile(  # code, comments, what pictures show, addresses
    r"^ *```.*?^ *```|`[^`\n]*`|<!--.*?-->|!\[[^\]]*\]|\]\([^)]*\)", re.DOTALL | re.MULTILINE
)
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
TEMPLATES: Final = sorted(path for ending in ("html", "js") for path in (ROOT / "headcount").rglob(f"*.{ending}"))
MODULES: Final = sorted(path for package in PROGRAM for path in (ROOT / package).rglob("*.py"))


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def found_in(text: str) -> list[str]:
    """Each word of our own in a text, with what to write instead."""
    flat = " ".join(text.split())
    hits = ((hit[0], word) for own, word in WORDS.items() for hit in re.finditer(own, flat, re.IGNORECASE))
    return [f"'{own}': write '{word}'" for own, word in hits]


def commands(command: click.Command, *names: str) -> Iterator[tuple[str, click.Command]]:
    yield " ".join(names), command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands(each, *names, name)


def strings(path: Path) -> Iterator[str]:
    """Those that may be shown: neither docstrings nor names."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)  # type: ignore[misc]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and not {id(node)} & (texts | inside):
            yield node.value


@pytest.mark.parametrize(("name", "command"), list(commands(cli, "headcount")), ids=lambda each: str(each)[:40])
def test_help_is_in_the_field_s_words(name: str, command: click.Command) -> None:
    shown = command.get_help(click.Context(command, info_name=name))
    assert found_in(shown) == []


@pytest.mark.parametrize("path", MODULES, ids=named)
def test_messages_are_in_the_field_s_words(path: Path) -> None:
    shown = [text for text in strings(path) if " " in text]
    assert [hit for text in shown for hit in found_in(text)] == []


@pytest.mark.parametrize("path", TEMPLATES, ids=named)
def test_templates_are_in_the_field_s_words(path: Path) -> None:
    assert found_in(path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_pages_are_in_the_field_s_words(path: Path) -> None:
    """Outside of code and of outputs, which follow from the program."""
    assert found_in(FENCED.sub(" ", path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("own", ["412 users are safe to promise", "what binds", "a twin, for ever"])
def test_a_word_of_our_own_is_found(own: str) -> None:
    assert found_in(own)
