"""Benchmark runs of SGLang's cookbook beside `headcount simulate`: this season's models, without draft tokens.

    python -m validation.cookbook [--write]

cookbook.csv has the facts: docs_new/src/snippets/configs of github.com/sgl-project/sglang, read 2026-12-01; `file` and
`version` (a commit, or the store's number of it) say where. `arguments` mean the page's launch flags; `shortest` is the
shortest length over the longest, where lengths are drawn; `statistic` is what the page's TPOT and TTFT are. Nothing is
fitted to them. `--write` puts the figures into docs/measurements/results; `python -m validation.pages` then writes the
table.
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import click
import pandas as pd

from files.errors import HeadcountError
from validation.markdown import DOCS, table
from validation.new_families import asked

FACTS: Final = Path(__file__).with_suffix(".csv")
RESULT: Final = DOCS / "measurements" / "results" / "cookbook.json"
WORST: Final = 15  # groups that the page shows
MANY: Final = 256  # clients; with more, servers are full


def measure(facts: pd.DataFrame) -> list[dict[str, Any]]:
    """Errors in % of each load, like with like: a published P50 beside the simulated one."""
    return [_compared(row) for row in facts.to_dict("records")]


def _compared(row: Mapping[Any, Any]) -> dict[str, Any]:
    words = f"simulate --engine sglang --model {shlex.quote(row['model'])} --gpu {row['gpu']} {row['arguments']}"
    words += f" --input-len {row['input']} --output-len {row['output']} --concurrency {row['clients']}"
    words += f" --num-requests {row['requests']}"
    words += "" if pd.isna(row["shortest"]) else f" --length-spread {row['shortest']}"
    group = {"model": row["model"], "gpu": row["gpu"], "clients": int(row["clients"])}
    try:
        found = asked(words)
    except (HeadcountError, click.ClickException) as error:
        return group | {"refused": str(error)}
    tpot, ttft = found["tpot_s"], found["ttft_s"]
    name = "p50" if row["statistic"] == "P50" else "mean"
    off, measured = tpot[name] / tpot["mean"], float(row["tpot_ms"]) / 1000
    times = {"tpot": 100 * (tpot[name] / measured - 1)}
    if not pd.isna(row["ttft_ms"]):
        times["ttft"] = 100 * (ttft[name] / (float(row["ttft_ms"]) / 1000) - 1)
    inside = tpot["mean_low"] * off <= measured <= tpot["mean_high"] * off
    return group | {name: round(error, 1) for name, error in times.items()} | {"inside": bool(inside)}


def cookbook_tables() -> dict[str, Callable[[], str]]:
    """By the names of the page's markers."""
    frame = pd.DataFrame(json.loads(RESULT.read_text(encoding="utf-8"))["runs"])
    frame["model"] = frame["model"].str.replace(r"^[^/]*/", "", regex=True)
    frame["family"] = frame["model"].str.extract(r"^([A-Za-z]+(?:-?[0-9][0-9.]*|-M[0-9][0-9.]*)?)", expand=False)
    return {"cookbook": lambda: _kinds(frame), "cookbook-worst": lambda: _worst(frame)}


def _kinds(frame: pd.DataFrame) -> str:
    is_amd = frame["gpu"].str.startswith("mi")
    one, many = frame["clients"] == 1, frame["clients"] > MANY
    kinds = {
        "all": is_amd | True,
        "NVIDIA, 1 client": ~is_amd & one,
        f"NVIDIA, to {MANY} clients": ~is_amd & ~one & ~many,
        "NVIDIA, 1,024 and 4,096 clients": ~is_amd & many,
        "AMD": is_amd,
    }
    kinds |= {name: (frame["family"] == name) & ~is_amd for name in sorted(frame["family"].unique())}
    titles = ("loads", "number", "model × GPU", "TPOT (bias), %", "TTFT (bias), %", "TPOT inside, %")
    return table(titles, [_row(name, frame[mask]) for name, mask in kinds.items()])


def _row(name: str, part: pd.DataFrame) -> tuple[str, ...]:
    groups = len(part.groupby(["model", "gpu"]))
    return (name, str(len(part)), str(groups), *_errors(part), f"{100 * part['inside'].mean():.0f}")


def _errors(part: pd.DataFrame) -> tuple[str, str]:
    """Of TPOT, then of TTFT, without loads whose TTFT is not told."""
    told = (part[name].dropna() for name in ("tpot", "ttft"))
    tpot, ttft = (f"{each.abs().median():.0f} ({each.median():+.0f})" if len(each) else "–" for each in told)
    return tpot, ttft


def _worst(frame: pd.DataFrame) -> str:
    groups = sorted(frame.groupby(["model", "gpu"]), key=lambda each: -float(each[1]["tpot"].abs().median()))
    rows = [(f"`{model}`, {gpu}", str(len(part)), *_errors(part)) for (model, gpu), part in groups[:WORST]]
    return table(("model, GPU", "loads", "TPOT (bias), %", "TTFT (bias), %"), rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"put the figures into {RESULT.name}")
    given = parser.parse_args()
    found = measure(pd.read_csv(FACTS).fillna({"arguments": ""}))
    text = '{"runs": [\n' + ",\n".join(map(json.dumps, found)) + "\n]}\n"
    if given.write:
        RESULT.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
