"""The page that says how the scheduler was compared with vLLM's, over which options, and what is not covered."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from kvcache.releases import SCHEDULER_RULES, release_key

MEANINGS = {
    "scheduling: synchronous": "`--no-async-scheduling`",
    "scheduling: asynchronous": "`--async-scheduling`: a step is decided while one runs",
    "prefix caching: on": "`--enable-prefix-caching`: shared prefixes, duplicates within a step, growing sessions",
    "prefix caching: off": "`--no-enable-prefix-caching`",
    "policy: priority": "`--scheduling-policy priority`; the other cases are first come, first served",
    "long_prefill_token_threshold: set": "`--long-prefill-token-threshold` 7 or 40",
    "watermark: set": "`--watermark` 0.02 or 0.1",
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
    "speculation: eagle": "EAGLE, EAGLE-3, MTP with one module: lookahead slots, the last hit computed again",
    "speculation: draft_model": "lookahead slots, drafting slots in the token budget",
    "speculation: ngram": "drafts without slots of their own",
    "pipeline: parallel": "2 to 4 pipeline stages: vLLM's batch queue; asynchronous ones with staggered decodes",
}
COMPARISON_COUNTS = (
    "seed", "cases", "steps", "preemptions", "prefix_hits", "storms", "fewest_storm_preemptions", "cut_short",
    "stalled", "differing_cases",
)  # fmt: skip
ENGINE_COUNTS = ("seed", "steps", "preemptions", "prefix_hits")
NOT_COVERED = (
    ("EAGLE or MTP with sliding windows or chunked attention", "refused"),
    ("speculative decoding with pipeline parallelism", "refused"),
    ("DFlash, DSpark, Medusa, suffix and parallel drafting, numbers of drafts by batch size", "refused"),
    ("MTP with several modules", "taken to have one"),
    ("drafting steps wider than `long_prefill_token_threshold`", "refused: vLLM's own assertion stops them"),
    ("an n-gram proposer that finds nothing to propose", "not modelled: every step has all its drafts"),
    (
        "prefix caching with states or with groups of unequal block size",
        "simulated without prefix caching, which is said",
    ),
    ("cross attention", "models refused"),
    ("images and other encoder inputs, pooling", "not modelled: text generation only"),
    ("LoRA limits, structured output", "not modelled"),
    ("KV transfer, offloading, prefill and decode on different engines", "not modelled"),
    ("context parallelism, throttled prefill under data parallelism", "not modelled"),
    ("aborted requests, streamed inputs, a paused engine", "not modelled"),
    ("`long_prefill_token_threshold_adaptive`, `max_num_active_seqs`", "not modelled"),
    ("stop strings and end-of-sequence tokens", "given: a request ends at its number of output tokens"),
)


def check_result(path: Path, result: dict[str, Any]) -> None:
    """Raise ValueError where a file holds no whole result of `check-scheduler --json` or `check-engine --json`."""
    is_comparison = "pairs" in result
    counts = COMPARISON_COUNTS if is_comparison else ENGINE_COUNTS
    missing = [name for name in counts if type(result.get(name)) is not int]
    missing += [name for name in ("options", "pairs") if is_comparison and not _holds_counts(result.get(name))]
    texts = ("vllm_version",) if is_comparison else ("vllm_version", "attention")
    missing += [name for name in texts if not isinstance(result.get(name), str)]
    if missing:
        raise ValueError(
            f"{path} is no result of check-scheduler or check-engine --json: {', '.join(missing)} is missing or odd"
        )


def _holds_counts(value: object) -> bool:
    return isinstance(value, dict) and all(type(count) is int for count in value.values())


def fidelity_page(comparisons: Sequence[dict[str, Any]], engines: Sequence[dict[str, Any]]) -> str:
    """Markdown from the results of `check-scheduler --json`, one per release, and of `check-engine --json`.

    Raises ValueError where a result is neither, or holds a difference: that is a defect to mend, not to publish.
    """
    for result in (*comparisons, *engines):
        if result.get("differing_cases") or result.get("difference"):
            raise ValueError(f"the result for vLLM {result['vllm_version']} has a difference; nothing is written")
    comparisons = sorted(comparisons, key=lambda result: release_key(result["vllm_version"]), reverse=True)
    parts = [
        "# Decisions laid beside vLLM's",
        "This page is written by `headcount calibrate fidelity-report` from the results in `docs/results`.",
        "## Method",
        _METHOD,
        "## Results",
        _results(comparisons),
        _STORMS,
        "## A real engine",
        _ENGINE,
        _engines(engines),
        "## Options",
        "In how many cases each occurs; the rest have vLLM's default.",
        _options(comparisons),
        f"Cases with both options of a pair, in the release that has fewer (vLLM {_names(comparisons)}):",
        _pairs(comparisons),
        "## Rules that differ between releases",
        "They go by `--vllm-version`. The prefix cache's retention interval is also 0 by default since 0.29, and none "
        "before.",
        _rules(),
        "## What is not covered",
        _table(("what", "here"), NOT_COVERED),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_METHOD = (
    "`headcount vllm install` builds an interpreter with vLLM for the CPU, or name your own with `--python`. "
    "`headcount calibrate check-scheduler --cases 200` then draws random cases from a seed, which it prints. Each is "
    "given to vLLM's own `Scheduler` or `AsyncScheduler`, with its KV-cache manager, coordinator and block pool, in a "
    "loop that follows vLLM's engine core, and to the compiled core that every answer of this tool comes from. A step "
    "takes a constant time on both sides, so that only decisions can differ. At every `schedule()` call the scheduled "
    "tokens of each request, preempted and finished requests, free blocks, running and waiting requests are compared, "
    "at every first admission the prefix hit. Any difference ends with exit code 1 and both sides of the first one. "
    "Block sizes run from 8 to 128, budgets from 16 to 2,048 tokens, `max_num_seqs` from 1 to 256, pools from the "
    "least that the longest request needs to ample ones; a quarter of the prompts are whole blocks, and some answers "
    "are cut off by `max_model_len`. With speculation, which drafts are accepted is the same function of request and "
    "position on both sides. The tests change rules one at a time (those that differ between releases; windows, "
    "groups, retention, stages, drafts) and require that cases come out otherwise: the comparison could tell."
)
_STORMS = (
    "A storm is a case with a pool so small that preemptions follow each other. A case is cut short after 8,000 "
    "steps: without `scheduler_reserve_full_isl` two requests may preempt each other for ever, in vLLM as here. One "
    "is stalled where nothing runs and the pool can never take the request that waits: vLLM waits for ever, a run "
    "here ends with an error that says so; what lies before is compared."
)
_ENGINE = (
    "`headcount calibrate check-engine` runs inference of a tiny model with dummy weights in vLLM's own engine on the "
    "CPU, in a small pool, and records its `schedule()` calls; requests arrive before given calls. The same arrivals "
    "through the compiled core must give the same schedule. vLLM's CPU platform schedules synchronously."
)


def _results(comparisons: Iterable[dict[str, Any]]) -> str:
    heads = (
        "vLLM", "seed", "cases", "steps", "preemptions", "prefix hits", "storms", "fewest preemptions in a storm",
        "cut short", "stalled", "cases that differ",
    )  # fmt: skip
    rows = [(result["vllm_version"], *(f"{result[name]:,}" for name in COMPARISON_COUNTS)) for result in comparisons]
    return _table(heads, rows)


def _engines(engines: Iterable[dict[str, Any]]) -> str:
    heads = ("vLLM", "layers attend to", "seed", "steps", "preemptions", "prefix hits", "steps that differ")
    rows = [
        (
            result["vllm_version"],
            "everything" if result["attention"] == "full" else "sliding windows and everything",
            *(f"{result[name]:,}" for name in ENGINE_COUNTS),
            "0",
        )
        for result in engines
    ]
    return _table(heads, sorted(rows, key=lambda row: (release_key(row[0]), row[1:]), reverse=True)) if rows else ""


def _options(comparisons: Sequence[dict[str, Any]]) -> str:
    seen = {name for result in comparisons for name in result["options"]}
    if strange := sorted(seen ^ set(MEANINGS)):
        raise ValueError(f"the results and this page's table disagree about {', '.join(strange)}; compare again")
    heads = ("option", "what", *(f"vLLM {result['vllm_version']}" for result in comparisons))
    return _table(
        heads,
        [
            (name, meaning, *(f"{result['options'].get(name, 0):,}" for result in comparisons))
            for name, meaning in MEANINGS.items()
        ],
    )


def _pairs(comparisons: Sequence[dict[str, Any]]) -> str:
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
    return _table(heads, [row + ("",) * (len(heads) - len(row)) for row in rows])


def _rules() -> str:
    return _table(("since", "rule"), [(rule.first, rule.meaning) for rule in SCHEDULER_RULES.values()])


def _names(comparisons: Iterable[dict[str, Any]]) -> str:
    return " or ".join(result["vllm_version"] for result in comparisons)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
