"""How far the memory model is from what public vLLM servers logged at their start.

"Held out" judges a model (with those of the same shape), or a source of rows, by constants with an interval that were
fitted without it.
"""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from validation.constants.memory_fit import Judged, held_out, judge
from validation.measured.servers import LoggedServer, read_logged_servers

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


def report(servers: Sequence[LoggedServer], left_out: Sequence[tuple[Mapping[str, str], str]]) -> dict[str, Any]:
    """All figures."""
    judged = judgements(servers)
    return {
        "servers": len(servers),
        "left_out": [{"model": row["model"], "gpu": row["gpu"], "reason": reason} for row, reason in left_out],
        "terms_percent": {how: term_errors(found) for how, found in judged.items()},
        "kv_tokens_percent": {
            how: {name: pool_errors(group) for name, group in groups(found).items() if group}
            for how, found in judged.items()
        },
    }


def kv_memory(data: Path) -> dict[str, Any]:
    """Errors of terms and pools in %, by shipped constants and held out."""
    servers, left_out = read_logged_servers(data)
    return report(servers, left_out)


def rows_text(data: Path) -> str:
    """A line per server with what was assumed for it, or why it cannot be predicted."""
    servers, left_out = read_logged_servers(data)
    lines = []
    for found in (judge(server) for server in servers):
        budget, server = found.server.budget, found.server
        pool = f"{found.kv_error:+7.2%} ± {found.half_width:.2%}" if server.is_judged else "no pool recorded"
        notes = "; ".join([*server.assumed, *(f"unmeasured: {condition}" for condition in budget.unmeasured)])
        where = f"{budget.gpu:10} TP {budget.tp} PP {budget.pipeline_parallel_size} {budget.vllm_version:8}"
        lines.append(f"{server.row['model']:58} {where} {pool:18}  {notes}")
    lines += [f"{row['model']:58} left out: {reason}" for row, reason in left_out]
    return "\n".join(lines)
