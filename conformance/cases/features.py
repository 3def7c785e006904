"""What a scheduler case exercises."""

from conformance.cases.scheduler_case import SchedulerCase


def features(case: SchedulerCase) -> dict[str, str]:
    """What a case exercises, by option; an option at vLLM's default is absent."""
    engine = case.engine
    windows = [group.window for group in engine.kv_groups if not group.is_state]
    found = {
        "scheduling": "asynchronous" if engine.async_scheduling else "synchronous",
        "prefix caching": "on" if engine.enable_prefix_caching else "off",
    }
    if engine.scheduling_policy == "priority":
        found["policy"] = "priority"
    if engine.long_prefill_token_threshold:
        found["long_prefill_token_threshold"] = "set"
    if engine.watermark_blocks:
        found["watermark"] = "set"
    if not engine.scheduler_reserve_full_isl:
        found["scheduler_reserve_full_isl"] = "off"
    if not engine.enable_chunked_prefill:
        found["chunked prefill"] = "off"
    if any(window is not None for window in windows):
        is_chunked = any(group.chunked for group in engine.kv_groups)
        found["window"] = "chunked" if is_chunked else "sliding + full" if None in windows else "sliding"
    if case.has_latent_attention:
        found["latent attention"] = "MLA"
    if found.get("window", "chunked") != "chunked" and engine.enable_prefix_caching:
        interval = engine.prefix_cache_retention_interval
        found["retention"] = "dense" if interval is None else "sparse" if interval else "ends only"
    if any(group.is_state for group in engine.kv_groups):
        found["states"] = "cached" if engine.caches_states else "beside attention"
    if any(group.block_size for group in engine.kv_groups):
        found["block sizes"] = "unequal"
    if engine.speculation:
        found["speculation"] = engine.speculation.method
    found |= {"adapters": "all fit" if engine.adapters.all_fit else "more than max_loras"} if engine.adapters else {}
    if engine.pipeline_parallel_size > 1:
        found["pipeline"] = "parallel"
    return found


def main_options(case: SchedulerCase) -> list[str]:
    """The options of `features` whose pairs are counted; kinds of attention and of speculation together."""
    found = features(case)
    for narrow in ("retention", "states", "block sizes"):  # they exist within other options only
        found.pop(narrow, None)
    together = ("window", "latent attention", "speculation", "pipeline")
    return sorted(option if option in together else f"{option}: {value}" for option, value in found.items())
