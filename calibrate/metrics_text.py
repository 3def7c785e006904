"""What a server's /metrics says, sample by sample."""

import re
from collections.abc import Iterator
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?[0-9]+)?\s*$")
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    """One line; labels in order of their names."""

    name: str
    labels: Labels
    value: float


def metric_samples(text: str) -> Iterator[Sample]:
    """The samples of Prometheus' text format; lines that are none are passed over."""
    for line in text.splitlines():
        match = _SAMPLE.match(line)
        if match is None or line.startswith("#"):
            continue
        try:
            value = float(match[3])
        except ValueError:
            continue
        labels = [(name, re.sub(r"\\.", _unescaped, given)) for name, given in _LABEL.findall(match[2] or "")]
        yield Sample(match[1], tuple(sorted(labels)), value)


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0], match[0])
