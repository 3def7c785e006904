"""Fits the constants and the intervals of the memory model to public start-up logs.

    python -m validation.constants.memory --data ../shared/data [--write]

reads `measured/kv_capacity.csv` there, prints the constants (they stand in kvcache/memory/terms.py) and the residuals.
`--write` puts the residuals into `kvcache/memory/memory_residuals.toml`; its [beyond] is kept as it stands there.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

from kvcache.memory.interval import RESIDUALS, Residuals
from validation.constants.memory_fit import fit_constants, fit_residuals
from validation.measured.servers import read_logged_servers


def residuals_text(residuals: Residuals) -> str:
    """The content of `kvcache/memory_residuals.toml`."""
    lines = ["# Written by `python -m validation.constants.memory --write`; [beyond] is kept as it stands here.", ""]
    lines += ["[interval]", f"half_width_sds = {residuals.half_width_sds:.4g}", ""]
    for name, spread in [("measured", residuals.measured)] + [
        (f"beyond.{name}", spread) for name, spread in residuals.beyond.items()
    ]:
        lines += [f"[{name}]"] + [
            f"{key} = {json.dumps(value, ensure_ascii=False) if isinstance(value, str) else f'{value:.4g}'}"
            for key, value in asdict(spread).items()
            if value
        ]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder that holds measured/")
    parser.add_argument("--write", action="store_true", help=f"write {RESIDUALS.name}")
    arguments = parser.parse_args()
    servers, _ = read_logged_servers(arguments.data)
    constants = fit_constants(servers)
    text = residuals_text(fit_residuals(servers, constants))
    print(json.dumps(asdict(constants), indent=2))
    print(text)
    if arguments.write:
        RESIDUALS.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
