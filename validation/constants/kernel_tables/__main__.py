"""Constants of the step-time terms from measured kernel times, beside the shipped ones.

    python -m validation.constants.kernel_tables --data ../shared/data

reads `measured/op_tables/` there (aiconfigurator-core 0.12, NVIDIA, Apache-2.0) and evaluates Headcount's own terms on
the tables' shapes. `--write` puts the fitted values into validation/constants/priors. Needs `headcount[parquet]`.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from validation.constants.kernel_priors import PRIORS
from validation.constants.kernel_tables.fits import CHANGED, Fitted, fit_gpu, fit_older
from validation.constants.kernel_tables.gemms import tile_factors
from validation.constants.kernel_tables.priors import prior_text
from validation.constants.kernel_tables.rows import breakdown
from validation.constants.kernel_tables.tables import available

COLUMNS = ("constant", "value", "low", "high", "shipped", "error %", "shipped error %", "rows")
FILES = {
    "a100_sxm": "ampere",
    "h100_sxm": "hopper",
    "h200_sxm": "h200-sxm",
    "b200_sxm": "blackwell",
    "l40s": "ada",
}


def table_text(fitted: list[Fitted]) -> str:
    """One line per constant; errors are medians of the term's absolute error over its rows."""
    lines = [f"{COLUMNS[0]:42}" + "".join(f"{name:>16}" for name in COLUMNS[1:])]
    for item in fitted:
        numbers = "".join(f"{number:16.4g}" for number in (item.value, item.low, item.high, item.shipped))
        errors = f"{item.median_error_percent:16.1f}{item.shipped_error_percent:16.1f}{item.rows:16d}"
        lines.append(f"{item.constant + (f' {item.key}' if item.key else ''):42}{numbers}{errors}")
    return "\n".join(lines)


def form_text(by_property: dict[str, dict[str, tuple[float, int]]]) -> str:
    """Where the form is wrong: the median signed error in percent along every property."""
    lines = []
    for name, parts in by_property.items():
        values = "  ".join(f"{value.removesuffix('.0')}: {error:+.0f}" for value, (error, _) in parts.items())
        lines.append(f"    {name:24}{values}")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--write", action="store_true", help="write validation/constants/priors/*.toml")
    arguments = parser.parse_args()
    content: dict[str, Any] = {"schema_version": 1, "gpus": {}}
    try:
        names = available(arguments.data)
    except ValueError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2
    for name in names:
        fitted, judged = fit_gpu(arguments.data, name)
        older = fit_older(arguments.data, name, fitted)
        forms = {rows.name: breakdown(rows, constants) for rows, constants in judged}
        content["gpus"][fitted[0].gpu] = {
            "constants": [asdict(item) for item in fitted],
            "older_kernels": [asdict(item) for item in older],
            "signed_errors": forms,
        }
        if arguments.write:
            text = prior_text(name, fitted, older, tile_factors(arguments.data, name))
            (PRIORS / f"{FILES[name]}.toml").write_text(text, encoding="utf-8")
        if not arguments.json:
            print(f"{fitted[0].gpu}\n{table_text(fitted)}")
            if older:
                print(f"before vLLM {CHANGED}\n{table_text(older)}")
            print("  median signed error in %")
            for term, by_property in forms.items():
                print(f"  {term}\n{form_text(by_property)}")
            print(flush=True)
    if arguments.json:
        print(json.dumps(content, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
