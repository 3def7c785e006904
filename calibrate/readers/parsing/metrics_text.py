"""What a server's /metrics says, sample by sample.

`prometheus_client.parser` takes two lines that ran into one for one sample; the tests hold it beside this one.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

Labels = tuple[tuple[str, str], ...]
_NAME, _GAP = "[a-zA-Z_][a-zA-Z0-9_]*", "[ \\t]*"
_LABEL = rf'{_NAME}{_GAP}={_GAP}"(?:[^"\\]|\\.)*"{_GAP}'
_LABELS = rf"{_GAP}(?:{_LABEL}(?:,{_GAP}{_LABEL})*(?:,{_GAP})?)?"
_SAMPLE = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:{_GAP}\{{({_LABELS})\}})?[ \t]+([^\s_]+)(?:[ \t]+-?[0-9]+)?")
_EACH_LABEL = re.compile(rf'({_NAME}){_GAP}={_GAP}"((?:[^"\\]|\\.)*)"')
_ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}


class Sample(NamedTuple):
    """One line; labels in order of their names."""

    name: str
    labels: Labels
    value: float


def metric_lines(text: str) -> Iterator[tuple[int, str, Sample | None]]:
    """Each line of Prometheus' text format that must hold a sample, by its number; None where it holds none."""
    for number, line in enumerate(map(str.strip, text.split("\n")), start=1):
        if line and not line.startswith("#"):
            yield number, line, _sample(line)


def metric_samples(text: str) -> Iterator[Sample]:
    """The samples of a text; lines that hold none are passed over."""
    return (sample for _, _, sample in metric_lines(text) if sample is not None)


def _sample(line: str) -> Sample | None:
    match = _SAMPLE.fullmatch(line)
    if match is None:
        return None
    given = _EACH_LABEL.findall(match[2] or "")
    labels = {name: re.sub(r"\\.", lambda found: _ESCAPES.get(found[0], found[0]), value) for name, value in given}
    try:
        value = float(match[3])
    except ValueError:
        return None
    return Sample(match[1], tuple(sorted(labels.items())), value) if len(labels) == len(given) else None
