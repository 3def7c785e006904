"""Sizes and mean TPOTs that others published of the families of 2025 and 2026, beside what the commands say.

    python -m validation.new_families [--write]

The facts are in new_families.toml, with their sources. Nothing is fitted to them. `--write` puts the figures into
docs/measurements/results; `python -m validation.pages` then writes the tables.
"""

import argparse
import io
import json
import shlex
import sys
import tomllib
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, Final

import click
import numpy as np

from files.errors import HeadcountError
from headcount.cli.main import cli
from validation.markdown import DOCS, table

FACTS: Final = Path(__file__).with_suffix(".toml")
RESULT: Final = DOCS / "measurements" / "results" / "new-families.json"
GIB: Final = 2**30


def measure() -> dict[str, Any]:
    """Every fact beside the answer; a refused question has its reason."""
    facts = tomllib.loads(FACTS.read_text(encoding="utf-8"))
    sources = facts["sources"]
    sizes = [_size(row) | {"source": f"{sources[row['source']]}, {row['file']}"} for row in facts["sizes"]]
    runs = [
        _run(run, load) | {"source": f"{sources[run['source']]}, {run['file']}"}
        for run in facts["runs"]
        for load in run["loads"]
    ]
    errors = [abs(run["error_percent"]) for run in runs if "error_percent" in run]
    return {
        "sizes": sizes,
        "runs": runs,
        "tpot_median_error_percent": round(float(np.median(errors)), 1) if errors else None,
        "inside": sum(run.get("inside", False) for run in runs),
        "sizes_within_3_percent": sum(abs(size["error_percent"]) <= 3 for size in sizes),
    }


def _size(row: Mapping[str, Any]) -> dict[str, Any]:
    answer = asked(f"memory --model {row['model']} --gpu b300-sxm -tp {row.get('ranks', 1)}")
    gib = answer["weights_bytes"] / GIB
    error = 100 * (gib / row["gib"] - 1)
    return {**row, "ours_gib": round(gib, 2), "error_percent": round(error, 1)}


def _run(run: Mapping[str, Any], load: Mapping[str, Any]) -> dict[str, Any]:
    words = f"simulate {run['arguments']} --input-len {load['input']} --output-len {load['output']}"
    words += f" --num-requests {load['requests']}" + (f" --length-spread {run['spread']}" if "spread" in run else "")
    words += f" --concurrency {load['clients']}" if "clients" in load else f" --rate {load['rate']}"
    found = {"command": f"headcount {words}", **load}
    try:
        tpot = asked(words)["tpot_s"]
    except (HeadcountError, click.ClickException) as error:
        return found | {"refused": str(error)}
    low, mean, high = (1000 * tpot[name] for name in ("mean_low", "mean", "mean_high"))
    return found | {
        "ours_ms": round(mean, 2), "low_ms": round(low, 2), "high_ms": round(high, 2),
        "error_percent": round(100 * (mean / load["tpot_ms"] - 1), 1), "inside": bool(low <= load["tpot_ms"] <= high),
    }  # fmt: skip


def asked(words: str) -> Mapping[str, Any]:
    """What a command prints as JSON, also where a model does not fit."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        cli.main(args=[*shlex.split(words), "--json"], standalone_mode=False)
    found: Mapping[str, Any] = json.loads(out.getvalue())
    return found


def new_family_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    return {"sizes": lambda: _sizes_table(found["sizes"]), "runs": lambda: _runs_table(found["runs"])}


def _sizes_table(sizes: list[dict[str, Any]]) -> str:
    rows = [
        (
            f"`{row['model']}`",
            row["what"],
            f"{row['gib']:,.1f}",
            f"{row['ours_gib']:,.1f}",
            f"{row['error_percent']:+.1f}",
        )
        for row in sizes
    ]
    return table(("model", "stated", "GiB", "ours", "error, %"), rows)


def _runs_table(runs: list[dict[str, Any]]) -> str:
    rows = []
    for run in runs:
        words = run["command"].split()
        load = f"{run['clients']} clients" if "clients" in run else f"{run['rate']} requests/s"
        where = f"`{words[words.index('--model') + 1]}`, {words[words.index('--gpu') + 1]}"
        ours = ("refused", "–", "–")
        if "ours_ms" in run:
            ours = (
                f"{run['ours_ms']:.1f} ({run['low_ms']:.1f} to {run['high_ms']:.1f})", f"{run['error_percent']:+.0f}",
                "yes" if run["inside"] else "no",
            )  # fmt: skip
        rows.append((where, f"{run['input']} → {run['output']}, {load}", f"{run['tpot_ms']:.1f}", *ours))
    return table(("model, GPU", "tokens, load", "TPOT, ms", "ours (90 %)", "error, %", "inside"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULT.name}")
    given = parser.parse_args()
    text = json.dumps(measure(), indent=1) + "\n"
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
