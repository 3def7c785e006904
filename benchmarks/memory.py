"""How far the memory model is off: `python benchmarks/memory.py --data DIR [--json | --rows | --fit]`.

DIR holds `measured/kv_capacity.csv`: what public vLLM servers logged at their start. Every row is judged, or listed
with the reason why not. "Held out" judges a model (with those of the same shape), or a source of rows, by constants
with an interval that were fitted without it. `--fit` prints the constants and writes `kvcache/memory_residuals.toml`.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from calibrate.logged_memory import LoggedServer, read_logged_servers
from calibrate.memory_fit import Judged, fit_constants, fit_residuals, held_out, judge
from kvcache.memory.interval import RESIDUALS, Residuals

GIB = 2**30


def summary(errors: Sequence[float]) -> dict[str, float]:
    """Of absolute relative errors, in %."""
    absolute = [abs(error) * 100 for error in errors]
    return {"mean": statistics.mean(absolute), "median": statistics.median(absolute), "worst": max(absolute)}


def term_errors(judged: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Weights with activation peaks against those logged."""
    pairs = {
        "weights": [(j.terms.weights_bytes, j.server.weights_gib) for j in judged],
        "activation peak": [(j.terms.activation_peak_bytes, j.server.activation_gib) for j in judged],
    }
    return {
        name: summary([predicted / GIB / logged - 1 for predicted, logged in found if logged is not None])
        for name, found in pairs.items()
    }


def pool_errors(judged: Sequence[Judged]) -> dict[str, float]:
    """Of the pools: how far off, how often within the interval, how wide that is, in %."""
    pools = [j for j in judged if j.server.is_judged]
    return {
        "pools": len(pools),
        **summary([j.kv_error for j in pools]),
        "covered": 100 * statistics.mean(j.is_covered for j in pools),
        "half_width": 100 * statistics.median(j.half_width for j in pools),
    }


def groups(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """All rows, those of each source, those beyond what the logs of the fit show."""
    found = {"all": list(judged), "full logs": [j for j in judged if j.server.source == "full logs"]}
    for source in sorted({j.server.source for j in judged} - {"full logs"}):
        found[source] = [j for j in judged if j.server.source == source]
    found["beyond what is measured"] = [j for j in judged if set(j.server.budget.unmeasured) - {"latent"}]
    return found


def judgements(servers: Sequence[LoggedServer]) -> dict[str, list[Judged]]:
    """Every server by the shipped constants, and by those that do not know its model, or its source."""
    return {
        "shipped": [judge(server) for server in servers],
        "held out by model": held_out(servers, lambda server: server.shape),
        "held out by source": held_out(servers, lambda server: server.source),
    }


def report(servers: Sequence[LoggedServer], left_out: Sequence[tuple[dict[str, str], str]]) -> dict[str, object]:
    """All that `--json` says."""
    judged = judgements(servers)
    return {
        "schema_version": 2,
        "servers": len(servers),
        "left_out": [{"model": row["model"], "gpu": row["gpu"], "reason": reason} for row, reason in left_out],
        "terms_percent": {how: term_errors(found) for how, found in judged.items()},
        "kv_tokens_percent": {
            how: {name: pool_errors(group) for name, group in groups(found).items() if group}
            for how, found in judged.items()
        },
    }


def residuals_text(residuals: Residuals) -> str:
    """The content of `kvcache/memory_residuals.toml`."""
    lines = ["# Written by `python benchmarks/memory.py --data DIR --fit`; [beyond] is kept as it stands here.", ""]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with measured/kv_capacity.csv")
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    shown.add_argument("--rows", action="store_true", help="every row instead of tables")
    shown.add_argument("--fit", action="store_true", help=f"write {RESIDUALS.name}, print the constants")
    arguments = parser.parse_args()
    servers, left_out = read_logged_servers(arguments.data)
    if arguments.fit:
        constants = fit_constants(servers)
        RESIDUALS.write_text(residuals_text(fit_residuals(servers, constants)), encoding="utf-8")
        print(json.dumps(asdict(constants), indent=2))
    elif arguments.json:
        print(json.dumps(report(servers, left_out), indent=2))
    elif arguments.rows:
        _print_rows(servers, left_out)
    else:
        _print_tables(servers, left_out)


def _print_rows(servers: Sequence[LoggedServer], left_out: Sequence[tuple[dict[str, str], str]]) -> None:
    for j in [judge(server) for server in servers]:
        b, server = j.server.budget, j.server
        pool = f"{j.kv_error:+7.2%} ± {j.half_width:.2%}" if server.is_judged else "no pool recorded"
        notes = [*server.assumed, *(f"unmeasured: {condition}" for condition in b.unmeasured)]
        print(f"{server.row['model']:58} {b.gpu:10} TP {b.tp} {b.vllm_version:8} {pool:18}  {'; '.join(notes)}")
    for row, reason in left_out:
        print(f"{row['model']:58} left out: {reason}")


def _print_tables(servers: Sequence[LoggedServer], left_out: Sequence[tuple[dict[str, str], str]]) -> None:
    print(f"{len(servers)} servers, {len({server.shape for server in servers})} shapes of models; absolute error in %")
    for how, judged in judgements(servers).items():
        print(f"\n{how}")
        for name, errors in term_errors(judged).items():
            print(f"  {name:26}" + "".join(f"  {key} {value:6.2f}" for key, value in errors.items()))
        for name, group in groups(judged).items():
            if any(j.server.is_judged for j in group):
                found = pool_errors(group)
                print(f"  KV tokens, {name:24}" + "".join(f"  {key} {value:6.2f}" for key, value in found.items()))
    print(f"\n{len(left_out)} rows left out")
    for row, reason in left_out:
        print(f"  {row['model']}, {row['gpu']}: {reason}")


if __name__ == "__main__":
    main()
