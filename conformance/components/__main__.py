"""Whether we count as the real software does; `headcount calibrate check-scheduler`: whether we decide so.

    python -m conformance.components parameters [--configs 10]   # beside transformers: every catalog model, random ones
    python -m conformance.components weights                     # beside vLLM: one rank's tensors under TP, DP and EP
    python -m conformance.components adapters                    # beside vLLM: one rank's LoRA slots under TP and EP
    python -m conformance.components kv-cache [--cases 2000]     # beside vLLM: pages, groups, blocks, concurrency
    python -m conformance.components eviction [--cases 2000]     # beside vLLM: which chunks leave host memory
    python -m conformance.components images [--cases 2000]       # beside both: how many tokens images become
    python -m conformance.components flags [--engine sglang]     # beside the server's parser: the table of flags
    python -m conformance.components engine [--attention hybrid] # beside vLLM: the schedule of its whole engine

Each needs an interpreter with vLLM (`headcount vllm install`, or `--python PATH`), no GPU, and a few minutes; `engine`
runs inference of a tiny model with dummy weights on the CPU. Exit code 1 on any difference.
"""

import argparse
import json
import secrets
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from calibrate.interpreters.interpreters import interpreter_for
from calibrate.interpreters.recipe import SGLANG, VLLM
from conformance.components.adapters import check_adapters
from conformance.components.cases.adapter_cases import adapter_cases
from conformance.components.cases.engine_cases import ATTENTIONS
from conformance.components.cases.weight_cases import weight_cases
from conformance.components.engine import check_engine
from conformance.components.eviction import check_eviction
from conformance.components.flags import check_flags
from conformance.components.images import check_images, image_cases
from conformance.components.kv_cache import catalog_cases, check_kv_cache, random_cases
from conformance.components.parameters import catalog_configs, check_parameters, random_configs
from conformance.components.weights import check_weights

PACKAGES = {"vllm": VLLM, "sglang": SGLANG}
WHAT = ("parameters", "weights", "adapters", "kv-cache", "eviction", "images", "flags", "engine")
MAX_SHOWN = 5  # differences; the JSON has all
Found = tuple[dict[str, Any], list[str], bool]  # JSON, text, whether anything differs


def parameters(python: Path, configs: int, seed: int) -> Found:
    """Parameter counts beside transformers."""
    found = check_parameters(python, {**catalog_configs(), **random_configs(seed, configs)})
    lines = [
        f"transformers {found.transformers_version}, seed {seed}: {len(found.equal):,} configs of "
        f"{len(found.model_types)} model types are equal in every component, {len(found.differences)} differ",
        *_not_compared(found.unknown),
        *(f"{each.name}, ours and transformers': {each.components}" for each in found.differences[:MAX_SHOWN]),
    ]
    return {"seed": seed, **found.to_json()}, lines, bool(found.differences)


def weights(python: Path) -> Found:
    """One rank's weights beside vLLM's own model code."""
    found = check_weights(python, weight_cases())
    refused_by_one = (*found.refused_by_us.items(), *found.refused_by_vllm.items())
    lines = [
        f"vLLM {found.vllm_version}: {len(found.equal)} splits are equal to the last byte, "
        f"{len(found.refused_by_both)} refused by both, {found.num_different} differ",
        *(f"{name}, our elements, vLLM's, our bytes, vLLM's: {each}" for name, each in found.differences.items()),
        *(f"{name}: refused by one alone: {reason}" for name, reason in refused_by_one),
    ]
    return asdict(found), lines, bool(found.num_different)


def adapters(python: Path) -> Found:
    """One rank's LoRA slots beside those of vLLM's own layers."""
    found = check_adapters(python, adapter_cases())
    lines = [
        f"vLLM {found.vllm_version}: the LoRA slots of {len(found.equal)} splits are equal to the last byte, "
        f"{len(found.refused_by_both)} refused by both, {len(found.differences)} differ",
        *(f"{name}, our bytes, vLLM's: {each}" for name, each in found.differences.items()),
    ]
    return asdict(found), lines, bool(found.differences)


def kv_cache(python: Path, cases: int, seed: int, *, models: bool) -> Found:
    """KV-cache layouts beside vLLM's own core."""
    found = check_kv_cache(python, [*random_cases(seed, cases), *(catalog_cases() if models else [])])
    lines = [
        f"vLLM {found.vllm_version}, seed {seed}: {found.equal:,} KV caches are equal, among them "
        f"{found.too_large:,} too large and {found.refused:,} refused by both; {len(found.differences)} differ",
        *_not_compared(found.not_built),
        *(f"{each.name}, ours and vLLM's: {each.fields}" for each in found.differences[:MAX_SHOWN]),
    ]
    return {"seed": seed, **found.to_json()}, lines, bool(found.differences)


def engine(python: Path, seed: int, attention: str) -> Found:
    """The schedule of vLLM's engine at inference, from the same arrivals."""
    found = check_engine(python, seed=seed, attention=attention)
    lines = [
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.finished:,} requests, {found.steps:,} steps, "
        f"{found.preemptions:,} preemptions, {found.prefix_hits:,} prefix hits; "
        + ("the schedule differs" if found.difference else "the schedule is the same"),
        *(found.difference.lines() if found.difference else ()),
    ]
    return found.to_json(), lines, found.difference is not None


def eviction(python: Path, cases: int, seed: int) -> Found:
    """What goes from host memory, under each policy."""
    found = check_eviction(python, num_cases=cases, seed=seed)
    lines = [
        f"vLLM {found.vllm_version}, seed {found.seed}: {found.operations:,} operations on {found.cases:,} host "
        f"memories, {found.refused:,} offers without room, {found.remembered:,} changes of ARC's target compared; "
        f"{len(found.differences)} differ",
        *(f"{name}: {value}" for each in found.differences[:1] for name, value in each.items()),
    ]
    return asdict(found), lines, bool(found.differences)


def images(python: Path, cases: int, seed: int) -> Found:
    """How many tokens images become, beside the families' own processors."""
    found = check_images(python, image_cases(seed, cases))
    lines = [
        f"vLLM {found.vllm_version}, seed {seed}: {found.equal:,} images have as many tokens, "
        f"{found.refused_by_both:,} are refused by both; {len(found.differences)} differ",
        *(f"{name}, ours, theirs: {each}" for name, each in [*found.differences.items()][:MAX_SHOWN]),
    ]
    return asdict(found), lines, bool(found.differences)


def flags(python: Path, engine_name: str) -> Found:
    """The table of flags beside the server's own argument parser."""
    found = check_flags(python, engine_name)
    wrong = [*(f"{flag}: in no group" for flag in found.unclassified), *(f"{flag}: said twice" for flag in found.twice)]
    title = f"{engine_name} {found.version}: {len(found.flags):,} flags, {len(wrong)} not classified once"
    return asdict(found), [title, *wrong], bool(wrong)


def _not_compared(reasons: Mapping[str, str]) -> list[str]:
    return [f"{name}: not compared: {reason}" for name, reason in reasons.items()]


def _run(given: argparse.Namespace, python: Path, seed: int) -> Found:
    comparisons: dict[str, Callable[[], Found]] = {
        "parameters": lambda: parameters(python, given.configs, seed),
        "weights": lambda: weights(python),
        "adapters": lambda: adapters(python),
        "flags": lambda: flags(python, given.engine),
        "engine": lambda: engine(python, seed, given.attention),
        "eviction": lambda: eviction(python, given.cases, seed),
        "images": lambda: images(python, given.cases, seed),
        "kv-cache": lambda: kv_cache(python, given.cases, seed, models=not given.no_models),
    }
    return comparisons[given.what]()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=WHAT)
    parser.add_argument("--engine", choices=tuple(PACKAGES), default="vllm", help="of flags")
    parser.add_argument("--configs", type=int, default=10, help="random configs of each model type")
    parser.add_argument("--cases", type=int, default=2000, help="random ones of kv-cache, eviction and images")
    parser.add_argument("--no-models", action="store_true", help="leave the catalog's models out of kv-cache")
    parser.add_argument("--attention", choices=ATTENTIONS, default="full", help="of engine; hybrid: with windows")
    parser.add_argument("--seed", type=int, help="of the random ones; a new one by default, printed")
    parser.add_argument("--vllm-version", help="an installed release; the newest by default")
    parser.add_argument("--python", type=Path, help="another interpreter that has the engine")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    given = parser.parse_args()
    try:
        python = interpreter_for(
            given.vllm_version, given.python, PACKAGES[given.engine], infers=given.what == "engine"
        )
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    found, lines, differs = _run(given, python, seed)
    print(json.dumps(found) if given.json else "\n".join(lines))
    return int(differs)


if __name__ == "__main__":
    sys.exit(main())
