"""Worked examples as Markdown, from which their claims can be read again."""

import re
from collections.abc import Iterable, Mapping, Sequence

from calibrate.worked_examples import guide_000, guide_001, guide_002, guide_003, guide_004
from calibrate.worked_examples.example import VERDICTS, Claim, Example, Figure, Judged

GUIDES: Mapping[str, tuple[Example, ...]] = {
    "Guide 000: training clusters, inference of Llama-2-70B": guide_000.ROWS,
    "Guide 001: a 7B in training, Qwen2.5-7B in inference": guide_001.ROWS,
    "Guide 002: GPT-2 in training": guide_002.ROWS,
    "Guide 003: LLaMA in formulas": guide_003.ROWS,
    "Guide 004: training on little memory": guide_004.ROWS,
}
EXAMPLES = tuple(example for rows in GUIDES.values() for example in rows)
_NONE = "–"
_HEADS = ("row, line", "what", "claimed", "ours", "off by", "why")
_WHAT = {
    "wrong": "wrong",
    "near": "near: within a quarter, or true with a limit",
    "lost": "a formula whose figure the guide's text has lost",
    "right": "right, its rounding apart",
}


# What our code has no number for.
KINDS = {
    "a formula": "no inputs to evaluate it with; the row or the law that does is named",
    "a wording": "no number",
    "a number format": "we count the bytes of formats, not the fields of their bits",
    "a rule of thumb": "we have none: the peak of the profiling run is modelled",
    "a flat allowance": "ours counts the parts, or is a share of the GPU",
    "a given figure": "part of the sum has no inputs",
    "a profiler's report": "measured, not counted",
    "a purchase price": "we know rents",
    "a line of code": "ours searches layouts",
    "time": "not memory",
    "communication": "not memory",
}


def examples_section(claims: Mapping[str, Claim]) -> str:
    """Every example with its claim, ours, and how far they are apart."""
    guides = {
        title: [Judged(example=example, claim=claims[example.name]) for example in rows]
        for title, rows in GUIDES.items()
    }
    judged = [found for rows in guides.values() for found in rows]
    parts = [
        "## Worked examples of others, recomputed",
        _INTRO.format(count=len(judged), expressed=sum(found.example.is_expressed for found in judged)),
        _counts(guides),
        "### How claims are wrong",
        _causes(judged),
        *(_guide(title, rows) for title, rows in guides.items()),
        "### Rows without a number of ours",
        "What our code does not count; the tables above have each row's own reason.",
        _not_expressed(judged),
        "### Where we differ from the recomputation",
        "The file's author recomputed each row too. Ours is another number, or another verdict, in these; in all other "
        "rows above that have a number of ours it is the recomputed one, to its last printed digit. The file calls "
        f"{_file_wrong(judged)} claims wrong, we {sum(found.verdict == 'wrong' for found in judged)}.",
        _differing(judged),
    ]
    return "\n\n".join(parts) + "\n"


_INTRO = (
    "Five widely read guides to the memory of language models hold {count} formulas and worked numbers. They stand in "
    "a file, each recomputed by hand; here the code of this tool recomputes them again, and has a number of its own "
    "for {expressed}. Claimed figures are the guides'; ours come from the row's inputs (parameters in round billions, "
    "GPUs of 80 decimal GB), so that only the rule is judged. *Off by* is claimed over ours, where they are more than "
    "2 % apart. E006 is the file's row, *line* the guide's."
)


def claims_of_page(page: str) -> dict[str, Claim]:
    """The claims that a page of `examples_section` shows. Raises `ValueError` where an example is not on it."""
    found = {}
    lines = {match[1]: match[0] for match in re.finditer(r"^\| (E\d{3}), .*$", page, re.MULTILINE)}
    for example in EXAMPLES:
        if example.name not in lines:
            raise ValueError(f"the page has no row {example.name}; give the file of worked examples as --examples")
        where, _, claimed = lines[example.name].strip("| ").split(" | ")[:3]
        printed = iter([] if claimed == _NONE else [part.split(" ")[0] for part in claimed.split("; ")])
        digits = []
        for figure in example.figures:
            shown = next(printed, None) if _is_claimed(figure) else None
            digits.append(None if figure.claimed is None else shown)
        found[example.name] = Claim(line=where.partition(", ")[2], digits=tuple(digits))
    return found


def _is_claimed(figure: Figure) -> bool:
    return figure.claimed is not None or figure.claim is not None


def _guide(title: str, rows: Sequence[Judged]) -> str:
    wrong = sorted((found for found in rows if found.verdict == "wrong"), key=_furthest_first)
    parts = [f"### {title}", "**Wrong**", _table(_HEADS, [_cells(found) for found in wrong])]
    rest = [found for found in rows if found.verdict != "wrong"]
    for topic in dict.fromkeys(found.example.topic for found in rest):
        about = [found for found in rest if found.example.topic == topic]
        about.sort(key=lambda found: VERDICTS.index(found.verdict))
        table = _table((*_HEADS[:4], "verdict", "remark"), [_cells(found, shows_verdict=True) for found in about])
        parts.append(
            f"<details><summary>{topic[0].upper() + topic[1:]}: {len(about)} more</summary>\n\n{table}\n\n</details>"
        )
    return "\n\n".join(parts)


def _furthest_first(found: Judged) -> tuple[float, str]:
    factor = found.factor
    return (0.0 if factor is None else -max(factor, 1 / factor)), found.example.name


def _cells(found: Judged, *, shows_verdict: bool = False) -> tuple[str, ...]:
    example = found.example
    claimed = [
        f"{_number(figure.claim) if figure.claim is not None else digits} {figure.unit}"
        for figure, digits in zip(example.figures, found.claim.digits, strict=True)
        if _is_claimed(figure)
    ]
    ours = [f"{_number(figure.ours())} {figure.unit}" for figure in example.figures if figure.ours is not None]
    return (
        f"{example.name}, {found.claim.line}",
        f"{example.topic}: {example.about}" if not shows_verdict else example.about,
        "; ".join(claimed) or _NONE,
        "; ".join(ours) or _NONE,
        found.verdict if shows_verdict else shown_factor(found.factor),
        example.why,
    )


def shown_factor(factor: float | None) -> str:
    """`2 ×` for twice too much, `1/2` for half; a dash within 2 %."""
    if factor is None or abs(factor - 1) <= 0.02:
        return _NONE
    off = max(factor, 1 / factor)
    shown = f"{off:,.0f}" if off >= 100 else f"{off:.3g}"
    return f"{shown} ×" if factor >= 1 else f"1/{shown}"


def _number(value: float) -> str:
    """Whole numbers whole, others to four digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 10_000 else f"{value:,.4g}"


def _counts(guides: Mapping[str, Sequence[Judged]]) -> str:
    rows = [
        (_WHAT[verdict], *(str(sum(found.verdict == verdict for found in rows)) for rows in guides.values()))
        for verdict in VERDICTS
    ]
    heads = ("verdict", *(title.partition(":")[0] for title in guides), "all")
    return _table(heads, [(*row, str(sum(int(count) for count in row[1:]))) for row in rows])


def _causes(judged: Iterable[Judged]) -> str:
    named: dict[str, list[str]] = {}
    for found in judged:
        if found.verdict == "wrong":
            named.setdefault(found.example.cause, []).append(found.example.name)
    rows = sorted(named.items(), key=lambda item: (-len(item[1]), item[0]))
    return _table(("what", "rows", ""), [(cause, str(len(names)), _ranges(names)) for cause, names in rows])


def _not_expressed(judged: Iterable[Judged]) -> str:
    why = {found.example.name: found.example.why for found in judged}
    named: dict[str, list[str]] = {}
    for found in judged:
        if not found.example.is_expressed:
            named.setdefault(_kind(found.example.name, why), []).append(found.example.name)
    rows = sorted(named.items(), key=lambda item: (-len(item[1]), item[0]))
    return _table(
        ("what", "why", "rows", ""), [(kind, KINDS[kind], str(len(names)), _ranges(names)) for kind, names in rows]
    )


def _kind(name: str, why: Mapping[str, str]) -> str:
    """The reason up to its first stop, one of `KINDS`; `as E047` stands for that row's."""
    first = re.split(r"[:;,]", why[name])[0]
    other = re.fullmatch(r"as (E\d{3})", first)
    return _kind(other[1], why) if other else first


def _differing(judged: Iterable[Judged]) -> str:
    rows = []
    for found in judged:
        example = found.example
        if example.differs or example.otherwise:
            verdicts = f"{example.otherwise} → {found.verdict}" if example.otherwise else found.verdict
            rows.append((example.name, f"{example.topic}: {example.about}", _cells(found)[3], verdicts, example.why))
    return _table(("row", "what", "ours", "verdict, the file's → ours", "why"), rows)


def _file_wrong(judged: Iterable[Judged]) -> int:
    return sum((found.example.otherwise or found.verdict) == "wrong" for found in judged)


def _ranges(names: Sequence[str]) -> str:
    """`E200–E219, E222`."""
    found: list[list[int]] = []
    for name in names:
        value = int(name[1:])
        if found and value == found[-1][1] + 1:
            found[-1][1] = value
        else:
            found.append([value, value])
    return ", ".join(f"E{first:03}" if first == last else f"E{first:03}–E{last:03}" for first, last in found)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
