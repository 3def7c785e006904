"""What changed in the question from one answer to another, and what did it do to the answer?"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from files.documents import Json, ReadJson
from headcount.inputs.question import question
from headcount.queries.result import Result
from headcount.queries.saved_answer import read_answer, was_changed
from headcount.text.words import EACH_GETS, SAFE

_ASKED = ("model", "gpu", "workload", "think_time_s", "router", "growth", "headroom", "spare_servers", "seed")
_ENDS = {
    "low": "users at 95 % confidence",
    "users": "expected users",
    "high": "upper end of the 90 % interval of users",
}
_MEANS = {
    "attainment": "requests within the SLO", "requests_per_s": "requests/s", "kv_usage": "KV blocks used",
    "prefix_hit_rate": "prompt tokens found in the cache",
    "host_hit_rate": "prompt tokens found in the offloaded KV cache",
}  # fmt: skip
_SAID = ("buy", "for", EACH_GETS)  # of the question, or said in the answer's own line


@dataclass(frozen=True)
class Difference:
    """One thing that is not the same; None where one of the two answers does not have it."""

    name: str
    before: Any
    after: Any

    @property
    def change(self) -> float | None:
        """Relative; None where there is none."""
        pair = self.before, self.after
        if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in pair) or not self.before:
            return None
        return float(self.after / self.before - 1)

    def to_json(self) -> Json:
        return asdict(self) | {"change": self.change}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DiffResult(Result):
    """What is not the same in two answers."""

    kind = "difference"
    view = "diff"
    questions: tuple[str, str]
    asked_changes: tuple[Difference, ...]
    answer_changes: tuple[Difference, ...]

    def figures(self) -> Json:
        return {
            "questions": list(self.questions),
            "question_changes": [each.to_json() for each in self.asked_changes],
            "answer_changes": [each.to_json() for each in self.answer_changes],
        }

    def rows(self) -> list[Json]:
        both = (("question", self.asked_changes), ("answer", self.answer_changes))
        return [{"of": of, **each.to_json()} for of, changes in both for each in changes]


@question
def diff(before: str | Path, after: str | Path) -> DiffResult:
    """What changed from one saved answer to another, in the question and in the answer.

    Both are files that `--json`, `--report FILE.json` or an HTML report wrote. Raises HeadcountError for any other.
    """
    first, second = read_answer(Path(before)), read_answer(Path(after))
    same_words = first.get("schema_version") == second.get("schema_version")  # else every sentence differs
    with_load = same_words and first.get("workload") == second.get("workload")  # else every row of it differs
    try:
        return DiffResult(
            diagnostics=(),
            questions=(first["report"]["summary"]["question"], second["report"]["summary"]["question"]),
            asked_changes=tuple(_changes(dict(_asked(first, with_load)), dict(_asked(second, with_load)))),
            answer_changes=tuple(_changes(*_under_same_names(first, second, same_words))),
        )
    except (LookupError, TypeError, AttributeError, ValueError, ArithmeticError) as error:
        raise was_changed(f"{before} or {after}", error) from None


def _under_same_names(
    first: ReadJson, second: ReadJson, same_words: bool
) -> tuple[dict[str, object], dict[str, object]]:
    """What came out; of answers of two schemas, whose words differ, what both have under one name."""
    before, after = dict(_found(first)), dict(_found(second))
    if same_words:
        return before, after
    both = [name for name in before if name in after]
    return {name: before[name] for name in both}, {name: after[name] for name in both}


def _changes(before: ReadJson, after: ReadJson) -> Iterator[Difference]:
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) != after.get(name):
            yield Difference(name, before.get(name), after.get(name))


def _asked(answer: ReadJson, with_load: bool) -> Iterator[tuple[str, object]]:
    """What decides an answer."""
    report = answer["report"]
    yield "kind of question", report["kind"]
    yield from ((name.replace("_", " "), answer[name]) for name in _ASKED if answer.get(name) is not None)
    yield from ((f"SLO: {name}", value) for name, value in (answer.get("slo") or {}).items())
    for link in (report.get("demand") or {}).get("links", ()):
        yield link["meaning"], link["shown"]
    deployment = report.get("deployment") or {}
    yield from (deployment.get("settings") or {}).items()
    for row in report.get("assumptions", ()) if with_load else ():
        yield f"{row['part']}: {row['name']}", row["value"]
    for item in report["inputs"]:
        yield f"file {item['name']}", item["sha256"][:12]
    yield from ((f"version of {name}", version) for name, version in report["versions"].items())


def _found(answer: ReadJson) -> Iterator[tuple[str, Any]]:
    """What came out."""
    report = answer["report"]
    page = report["summary"]
    yield "answer", page["answer"]
    room = page["headroom"] or {}
    yield from ((said, room[name]) for name, said in _ENDS.items() if name in room)
    yield from ((name, figure) for name, figure in page["figures"] if name not in _SAID)
    yield from _options(page["options"] or {"columns": (), "rows": ()})
    yield "bottleneck", report.get("binding")
    for load in report.get("loads", ()):
        if load["share"] in (None, 1.0):
            yield from ((said, load[name]) for name, said in _MEANS.items() if name in load)
    yield "server", (report.get("deployment") or {}).get("serve_line")


def _options(table: ReadJson) -> Iterator[tuple[str, object]]:
    """The users of each row of the summary's table but the first, which the answer names."""
    for place, column in enumerate(table["columns"]):
        if SAFE in column:
            yield from ((f"{column}: {row[0]} ({table['columns'][0]})", row[place]) for row in table["rows"])
