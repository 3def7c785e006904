"""Whether a release of vLLM or SGLang still decides as simulated: every comparison, and the text of an issue.

`python -m validation.engine_news ENGINE VERSION OUT [--cases 200]` compares with an installed release, writes
OUT/engine-VERSION.json and, where something differs, OUT/issue.md; its exit code is 1 then. With `--store` the JSON is
put beside the results from which docs/measurements/fidelity.md is made.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from conformance.checks import CHECKS
from simulator.engines.engines import TITLES, VLLM
from validation.markdown import DOCS, table

RESULTS: Final = DOCS / "measurements" / "results"
_NEEDS_OTHERS: Final = ("lmcache",)  # topics whose own package is not installed with the engine
_MOST_LINES: Final = 40  # of one difference
_EQUAL, _DIFFERS = 0, 1  # exit codes of a comparison; any other means that it did not run
_VERDICTS: Final = {_EQUAL: "equal", _DIFFERS: "differs"}
_NOT_RUN: Final = "did not run"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One topic: what was compared, and what was printed."""

    topic: str
    verdict: str  # equal, differs, did not run
    text: str


def commands(engine: str, version: str, cases: int, seed: int) -> Iterator[tuple[str, list[str]]]:
    """Each topic with the command that compares it."""
    python = sys.executable
    count, drawn = f"--cases={cases}", f"--seed={seed}"
    for about in CHECKS[engine]:
        if about not in _NEEDS_OTHERS:
            check = ["calibrate", "check-scheduler", f"--engine={engine}", f"--about={about}", f"--version={version}"]
            yield f"decisions: {about}", [python, "-m", "headcount", *check, count, drawn]
    components = [python, "-m", "conformance.components"]
    yield "flags", [*components, "flags", f"--engine={engine}", f"--vllm-version={version}"]
    if engine == VLLM:
        yield "weights", [*components, "weights", f"--vllm-version={version}"]
        yield "KV layouts", [*components, "kv-cache", f"--vllm-version={version}", count, drawn]
        starts = ["pytest", "-q", "-n0", "-m", "slow", "tests/conformance/test_check_starts.py"]
        yield "start-up rules", [python, "-m", *starts]


def compared(topic: str, command: Sequence[str]) -> Comparison:
    """Run a comparison to its end."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    text = done.stdout.strip() or done.stderr.strip()
    is_skipped = "pytest" in command and " passed" not in text  # its checks are of another release
    verdict = _NOT_RUN if is_skipped else _VERDICTS.get(done.returncode, _NOT_RUN)
    return Comparison(topic=topic, verdict=verdict, text=text)


def issue(title: str, found: Sequence[Comparison]) -> str:
    """What differs, as Markdown: a table of all topics, then the first lines of each that is not equal."""
    rows = [(each.topic, each.verdict) for each in found]
    wrong = [each for each in found if each.verdict != _VERDICTS[_EQUAL]]
    parts = [f"{title}: {len(wrong)} of {len(found)} comparisons are not equal.", table(("topic", "verdict"), rows)]
    for each in wrong:
        lines = "\n".join(each.text.splitlines()[:_MOST_LINES])
        parts.append(f"### {each.topic}: {each.verdict}\n\n```text\n{lines}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> int:
    """Compare, and write what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engine", choices=[*CHECKS])
    parser.add_argument("version")
    parser.add_argument("out", type=Path)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store", action="store_true")
    given = parser.parse_args()
    found = []
    for topic, command in commands(given.engine, given.version, given.cases, given.seed):
        found.append(compared(topic, command))
        print(f"{topic}: {found[-1].verdict}", flush=True)
    result = {
        "engine": given.engine,
        "version": given.version,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "cases": given.cases,
        "seed": given.seed,
        "topics": [asdict(each) for each in found],
    }
    given.out.mkdir(parents=True, exist_ok=True)
    for folder in [given.out, *([RESULTS / "support"] if given.store else [])]:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{given.engine}-{given.version}.json").write_text(json.dumps(result, indent=1) + "\n")
    if any(each.verdict != _VERDICTS[_EQUAL] for each in found):
        (given.out / "issue.md").write_text(issue(f"{TITLES[given.engine]} {given.version}", found))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
