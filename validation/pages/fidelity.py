"""The tables of docs/measurements/fidelity.md, from stored results of the comparisons with vLLM and SGLang."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from kvcache.releases import SCHEDULER_RULES, release_key
from simulator.engines.engines import TITLES
from validation.markdown import DOCS, table

Results = Sequence[Mapping[str, Any]]
MEANINGS = {
    "scheduling: synchronous": "`--no-async-scheduling`",
    "scheduling: asynchronous": "`--async-scheduling`: a step is decided while one runs",
    "prefix caching: on": "`--enable-prefix-caching`: shared prefixes, duplicates within a step, growing sessions",
    "prefix caching: off": "`--no-enable-prefix-caching`",
    "policy: priority": "`--scheduling-policy priority`; the other cases are first come, first served",
    "long_prefill_token_threshold: set": "`--long-prefill-token-threshold` 5 to 40",
    "watermark: set": "`--watermark` 0.02 to 0.4",
    "scheduler_reserve_full_isl: off": "`--no-scheduler-reserve-full-isl`: admitted when the first chunk fits",
    "chunked prefill: off": "`--no-enable-chunked-prefill`",
    "latent attention: MLA": "the KV-cache spec of a latent, as in DeepSeek: blocks like full attention's",
    "window: sliding + full": "layer groups as in Gemma 3, gpt-oss: their blocks, admission cap, freed windows, hits",
    "window: sliding": "groups with one or two windows, none with full attention",
    "window: chunked": "chunked local attention as in Llama 4",
    "states: beside attention": "one state per request and group, as in Granite 4; without prefix caching",
    "block sizes: unequal": "groups whose blocks hold more tokens than others'; without prefix caching",
    "retention: ends only": "`prefix_cache_retention_interval` 0: a window's tail is cached at the prompt's end",
    "retention: sparse": "`prefix_cache_retention_interval` of 1 to 8 blocks",
    "retention: dense": "`prefix_cache_retention_interval` none: every block of a window is cached",
    "speculation: eagle": "EAGLE, EAGLE-3, MTP with one module: lookahead slots, hits by the release's rule",
    "speculation: draft_model": "lookahead slots, drafting slots in the token budget",
    "speculation: ngram": "drafts without slots of their own",
    "pipeline: parallel": "2 to 4 pipeline stages: vLLM's batch queue; asynchronous ones with staggered decodes",
}
COMPARISON_COUNTS = (
    "seed", "cases", "steps", "preemptions", "prefix_hits", "resumed_hits", "storms", "fewest_storm_preemptions",
    "cut_short", "stalled", "differing_cases",
)  # fmt: skip
SGLANG_COUNTS = ("seed", "cases", "batches", "retractions", "radix_hits", "finished", "differing_cases")
RADIX_COUNTS = ("seed", "cases", "operations", "hits", "evictions", "differing_cases")
ENGINE_COUNTS = ("seed", "steps", "preemptions", "prefix_hits")


def fidelity_tables(folder: Path = DOCS / "measurements" / "results") -> dict[str, Callable[[], str]]:
    """By the names of the page's markers.

    Raises ValueError where a result holds a difference: that is a defect to mend, not to publish.
    """
    results = []
    for path in sorted(folder.glob("*.json")):
        results.append(json.loads(path.read_text(encoding="utf-8")))
        if results[-1].get("differing_cases") or results[-1].get("difference"):
            raise ValueError(f"the result in {path.name} has a difference; nothing is written")
    compared, engines = (_newest_first(results, having) for having in ("pairs", "attention"))
    comparisons = [result for result in compared if result.get("about") != "states"]
    return {
        "comparisons": partial(_comparisons, comparisons),
        "states": partial(_states, [result for result in compared if result.get("about") == "states"]),
        "engines": partial(_engines, engines),
        "sglang": partial(_sglang, results, SGLANG_COUNTS),
        "radix": partial(_sglang, results, RADIX_COUNTS),
        "support": partial(_support, folder / "support"),
        "options": partial(_options, comparisons),
        "pairs": partial(_pairs, comparisons),
        "rules": lambda: table(("since", "rule"), [(rule.first, rule.meaning) for rule in SCHEDULER_RULES.values()]),
    }


def _newest_first(results: Results, having: str) -> Results:
    return sorted(
        (result for result in results if having in result),
        key=lambda result: release_key(result["vllm_version"]),
        reverse=True,
    )


def _comparisons(comparisons: Results) -> str:
    heads = (
        "vLLM", "seed", "cases", "steps", "preemptions", "prefix hits", "hits at resumption", "storms",
        "fewest preemptions in a storm", "cut short", "stalled", "cases that differ",
    )  # fmt: skip
    rows = [(result["vllm_version"], *_counts(result, COMPARISON_COUNTS)) for result in comparisons]
    return table(heads, rows)


def _states(comparisons: Results) -> str:
    heads = (
        "vLLM", "seed", "cases", "steps", "preemptions", "prefix hits", "hits at resumption", "cut short", "stalled",
        "cases that differ",
    )  # fmt: skip
    names = [name for name in COMPARISON_COUNTS if "storm" not in name]
    return table(heads, [(result["vllm_version"], *_counts(result, names)) for result in comparisons])


def _engines(engines: Results) -> str:
    heads = ("vLLM", "attention", "seed", "steps", "preemptions", "prefix hits", "steps that differ")
    rows = [
        (
            result["vllm_version"],
            "full" if result["attention"] == "full" else "full and sliding windows",
            *_counts(result, ENGINE_COUNTS),
            "0",
        )
        for result in engines
    ]
    return table(heads, rows)


def _sglang(results: Results, counts: Sequence[str]) -> str:
    """The results that have all of these counts."""
    heads = ("SGLang", *(name.replace("_", " ") for name in counts[:-1]), "cases that differ")
    compared = [result for result in results if result.keys() >= {"sglang_version", *counts}]
    return table(heads, [(result["sglang_version"], *_counts(result, counts)) for result in compared])


def _support(folder: Path) -> str:
    """What `validation.engine_news` found of each release."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    rows = [
        (
            f"{TITLES[each['engine']]} {each['version']}",
            each["date"],
            f"{each['cases']}",
            *(_topics(each, verdict) for verdict in ("equal", "differs", "did not run")),
        )
        for each in found
    ]
    return table(("release", "compared on", "cases of each topic", "equal", "differ", "did not run"), rows)


def _topics(result: Mapping[str, Any], verdict: str) -> str:
    return ", ".join(each["topic"] for each in result["topics"] if each["verdict"] == verdict) or "none"


def _counts(result: Mapping[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{result[name]}" if name == "seed" else f"{result[name]:,}" for name in names]


def _options(comparisons: Results) -> str:
    seen = {name for result in comparisons for name in result["options"]}
    if strange := sorted(seen ^ set(MEANINGS)):
        raise ValueError(f"the results and this page's table disagree about {', '.join(strange)}; compare again")
    heads = ("option", "what", *(f"vLLM {result['vllm_version']}" for result in comparisons))
    rows = [
        (name, meaning, *(f"{result['options'].get(name, 0):,}" for result in comparisons))
        for name, meaning in MEANINGS.items()
    ]
    return table(heads, rows)


def _pairs(comparisons: Results) -> str:
    """A triangle; a dash where the two exclude each other or cannot be simulated together."""
    pairs = {pair: tuple(pair.split(" + ")) for result in comparisons for pair in result["pairs"]}
    names = sorted({name for pair in pairs.values() for name in pair})
    fewest = {
        frozenset(parts): min(result["pairs"].get(pair, 0) for result in comparisons) for pair, parts in pairs.items()
    }
    rows = [
        (str(number), one, *(f"{fewest.get(frozenset((one, other)), 0) or '–'}" for other in names[: number - 1]))
        for number, one in enumerate(names, start=1)
    ]
    heads = ("", "", *(str(number) for number in range(1, len(names))))
    return table(heads, [row + ("",) * (len(heads) - len(row)) for row in rows])
