"""Texts of constants and covariances with values that were fitted."""

import re
from collections.abc import Mapping, Sequence

import numpy as np

from simulator.latency.covariance import FOLLOWERS, Term
from simulator.latency.step_time import FloatArray


def with_values(text: str, source: str, terms: Mapping[Term, float]) -> str:
    """The text of a constants file with the values that another has for these terms."""
    for name in dict.fromkeys(name for name, _ in terms):
        pattern = rf"^{name} = {{ value = ({{[^}}]*}}|[^,]+)"
        if (new := re.search(pattern, source, re.MULTILINE)) and (old := re.search(pattern, text, re.MULTILINE)):
            text = text[: old.start(1)] + new[1] + text[old.end(1) :]
    return text


def times(text: str, logs: Mapping[Term, float]) -> str:
    """The text of a constants file with its values multiplied."""
    followers: dict[Term, float] = {
        (name, new): logs[name, old] for new, old in FOLLOWERS.items() for name, key in logs if key == old
    }
    for (name, key), log in {**logs, **followers}.items():
        line = re.search(rf"^{name} = .*$", text, re.MULTILINE)
        if line is None:
            continue
        before = rf"value = {{[^}}]*\b{key} = " if key else "value = "
        old = re.search(before + r"([0-9.e+-]+)", line[0])
        if old is None:
            continue  # a format that the family does not compute in
        changed = line[0][: old.start(1)] + f"{float(f'{float(old[1]) * np.exp(log):.3g}'):g}" + line[0][old.end(1) :]
        text = text.replace(line[0], changed)
    return text


def covariance_text(terms: Sequence[Term], matrix: FloatArray, comment: str) -> str:
    """A file of simulator/latency/covariances: the terms, then the matrix up to its diagonal."""
    lines = [f"# {line}" for line in comment.splitlines()]
    lines += ["terms = [", *(f'  "{term_text(term)}",' for term in terms), "]"]
    lines += ["covariance = [ # of the logarithms, up to the diagonal"]
    lines += [f"  [{', '.join(f'{cell + 0.0:.3g}' for cell in row[: place + 1])}]," for place, row in enumerate(matrix)]
    return "\n".join([*lines, "]"]) + "\n"


def term_text(term: Term) -> str:
    """`gemm_compute_share.fp8`"""
    return ".".join(filter(None, term))
