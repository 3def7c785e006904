"""Sentences and names that several answers and reports share."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from files.names import readable
from headcount.text.units import GIB, counted, percent, seconds, signed
from simulator.engines.engines import SGLANG, words_of
from simulator.engines.sglang.arguments import SGLangArgs
from simulator.fleet.pool_sizes import DECODE, PREFILL
from simulator.latency.model import ERROR_SEQUENCES
from simulator.study.variations.ratios import UNSURE_STEPS, coarse_error
from workloads.effects import CUT_FROM

if TYPE_CHECKING:
    from kvcache.memory.budget import MemoryBudget
    from simulator.cancellations import Cancellations
    from simulator.deployment import Deployment
    from simulator.latency.model import LatencyModel, LogError
    from simulator.study.points import Point
    from simulator.study.slo import SLO
    from simulator.study.statistics import Interval
    from workloads.effects import TrafficEffects

SAFE, BEST, UPPER = "users (95 % conf.)", "expected users", "upper end (90 %)"
"""The columns of users_low, users and users_high."""
AT_CONFIDENCE: Final = "at 95 % confidence"
"""Of users_low, in a sentence."""
PER_SAFE_USER: Final = "$/user"
PER_SAFE_MEANING: Final = f"{PER_SAFE_USER}: dollars per month per user {AT_CONFIDENCE}."
"""The one meaning of a cost per user: a month's dollars by users_low."""
PRECISION_REMARK: Final = "a smaller number format can change the model's answers: test their quality"
STEP_TIME_ERROR: Final = "step-time error"
TTFT_ERROR: Final = "TTFT error"
KV_CACHE_ERROR: Final = "KV-cache size error"
COVERED: Final = f"simulation noise, {STEP_TIME_ERROR}, {TTFT_ERROR} and {KV_CACHE_ERROR}"
LEAST_LOST: Final = 0.005
"""Of the users: a smaller loss is reported as 0 %."""
WORDS_PER_TOKEN: Final = 0.75
"""Of English text; OpenAI, help.openai.com: what are tokens and how to count them."""


HAPROXY_LINES: Final = {
    "least-outstanding": ("balance leastconn",),
    "session-affinity": ("balance leastconn", "stick on req.hdr(x-session-id)"),
}
"""A router as lines of a backend, by its configuration manual: docs.haproxy.org. `stick` needs a stick-table."""


def router_line(router: str) -> str:
    """The router before several servers, and how a usual load balancer does it."""
    lines = "; ".join(HAPROXY_LINES.get(router, ()))
    table = ", with a stick-table" if "stick on" in lines else ""
    return f"router: {router}" + (f" (HAProxy: {lines}{table})" if lines else "")


def layout_text(replicas: int, tp: int, dp: int, pp: int = 1) -> str:
    """Replicas × GPUs of each."""
    return f"{replicas} × TP{tp}" + (f" PP{pp}" if pp > 1 else "") + (f" DP{dp}" if dp > 1 else "")


def pools_text(counts: Sequence[int], sizes: Sequence[int]) -> str:
    """Such as `2 × TP1 prefill + 2 × TP4 decode`; without the numbers where nobody knows them."""
    named = zip(counts, sizes, (PREFILL, DECODE), strict=True)
    return " + ".join(f"{count:,} × TP{size} {role}" if count else f"TP{size} {role}" for count, size, role in named)


def pool_owner(budget: "MemoryBudget") -> str:
    """Whose the budget's KV blocks are."""
    if budget.attention_groups > 1:
        return "attention group"
    return "data-parallel rank" if budget.data_parallel_size > 1 and budget.engine == "vllm" else "replica"


def kv_pool(budget: "MemoryBudget") -> tuple[str, int, int, int]:
    """What the engine counts its KV cache in, how many of them it has, and the ends of their 90 % interval."""
    if budget.engine == SGLANG:
        return "tokens", budget.kv_cache_tokens, budget.kv_cache_tokens_low, budget.kv_cache_tokens_high
    return "blocks", budget.num_gpu_blocks, budget.num_gpu_blocks_low, budget.num_gpu_blocks_high


def pool_text(budget: "MemoryBudget") -> str:
    """The KV blocks that were simulated with, and their interval; of SGLang, tokens."""
    unit, count, low, high = kv_pool(budget)
    held = f"KV cache at TP {budget.tp}: {count:,} {unit} per {pool_owner(budget)}"
    return f"{held}, as given" if low == high else f"{held}; 90 % interval: {low:,} to {high:,} {unit}"


def host_text(budget: "MemoryBudget") -> str:
    """How much KV the CPU memory of a server or a remote cache of all servers holds; "" without them."""
    host, ranks = budget.host, budget.data_parallel_size
    if host is None:
        return ""
    most = "up to " if host.has_windows else ""
    held = f"{most}{host.num_tokens:,} tokens of KV in {host.num_chunks:,} chunks"
    each = f" for each of {ranks} data-parallel ranks" if ranks > 1 else ""
    if host.is_shared:
        whole = "" if host.store_bytes_per_s is None else f", {host.store_bytes_per_s / 1e9:,.4g} GB/s in all"
        return (
            f"remote KV cache of all servers: {held}, {host.num_bytes / GIB:,.1f} GiB; read and written at "
            f"{host.copied_bytes_per_s / 1e9:,.3g} GB/s one way per GPU{whole}"
        )
    return (
        f"CPU KV-cache offloading: {held}, {host.num_bytes / GIB:,.1f} GiB{each}; copied at "
        f"{host.copied_bytes_per_s / 1e9:,.3g} GB/s one way per GPU"
    )


def hits_text(gpu: float, host: float | None) -> str:
    """Shares of prompt tokens by where they were found, such as `52 % GPU + 30 % offloaded`."""
    return percent(round(gpu, 2)) + ("" if host is None else f" GPU + {percent(round(host, 2))} offloaded")


def settings_text(plan: "Deployment") -> str:
    """The server's main settings, given or assumed."""
    found = plan.settings
    if isinstance(plan.args, SGLangArgs):
        return _sglang_settings_text(plan, plan.args)
    cache = plan.architecture.dtype if found["kv_cache_dtype"] == "auto" else found["kv_cache_dtype"]
    scheduling = "" if found["async_scheduling"] else ", synchronous scheduling"
    return (
        f"vLLM {found['vllm_version']}{scheduling}, {cache} KV cache, "
        f"memory utilization {found['gpu_memory_utilization']:g}, "
        f"steps of up to {found['max_num_batched_tokens']:,} tokens and {found['max_num_seqs']:,} sequences"
    )


def _sglang_settings_text(plan: "Deployment", args: SGLangArgs) -> str:
    scheduling = ", mixed chunks" if args.enable_mixed_chunk else ""
    scheduling += ", no overlap schedule" if args.disable_overlap_schedule else ""
    chunk = (
        f"chunks of up to {args.chunked_prefill_size:,} tokens" if args.chunked_prefill_size > 0 else "whole prompts"
    )
    return (
        f"{plan.title}, policy {args.schedule_policy}{scheduling}, {kv_cache_text(plan)} KV cache, static memory share "
        f"{args.mem_fraction_static:g}, {chunk}, at most {plan.budget.max_num_seqs:,} running requests"
    )


def longest_name(engine: str) -> str:
    """What the engine calls its longest context."""
    return "context_length" if engine == SGLANG else "max_model_len"


def error_ends(error: "LogError", sequences: float) -> str:
    """How far measured means lie from simulated ones, `±9%`; both ends where they differ, `−6% to +114%`."""
    if error.shorter_sds is None:
        return f"±{error.half_width_at(sequences):.0%}"
    return f"−{1 - math.exp(-error.log_shorter_at(sequences)):.0%} to +{error.half_width_at(sequences):.0%}"


def error_sign(error: "LogError | None") -> str:
    """Before it: it goes both ways, or measured means may be longer by so much and hardly shorter."""
    return "±" if error is None or error.shorter_sds is None else "up to +"


def step_time_error(latency: "LatencyModel", sequences: float | None = None) -> str:
    """How far the step times may be off with so many sequences running."""
    if latency.is_given:
        return "every step takes the time that you gave; the scheduler's decisions are simulated"
    errors = latency.tpot_log_error, latency.ttft_log_error_of(in_step=False), latency.ttft_log_error
    tpot, ttft, equal = (error_ends(error, ERROR_SEQUENCES if sequences is None else sequences) for error in errors)
    also = f"; {equal} for equal clients that start together" if equal != ttft else ""
    is_judged = latency.open_ttft_log_error is not None and not latency.open_ttft_log_error.groups
    also = f", by judgement{also}" if is_judged and latency.is_measured else also
    within = f"90 % of measured means lie within {tpot} (TPOT) and {ttft} (TTFT{also}) of the simulated ones"
    within += f", with {ERROR_SEQUENCES} sequences running" if sequences is None else ""
    if not latency.is_measured:
        return f"no runs of this deployment were measured; estimated: {within}"
    if latency.calibrated:
        count = len(latency.warnings)
        outside = f"; {counted(count, 'setting')} {'lies' if count == 1 else 'lie'} outside it" if count else ""
        return f"step times from your latency profile: {within}{outside}"
    return f"step times are not calibrated on your server: {within}"


def load_text(point: "Point", unit: str) -> str:
    """A load that was simulated just now, such as `4,188 users: 97.7% meet the SLO in 4 replications`."""
    runs = counted(len(point.replications), "replication")
    return f"{readable(point.size)} {unit}: {point.attainment.mean:.1%} meet the SLO in {runs}"


def cancelled_text(found: "Cancellations") -> str:
    """How many requests had no whole answer, and what that cost."""
    parts = f"{percent(found.abandoned)} abandoned, {percent(found.timed_out)} timed out"
    parts += f", {percent(found.rejected)} rejected by the gateway" if found.rejected else ""
    wasted = f"{percent(found.wasted_tokens)} of computed tokens wasted"
    return f"{percent(found.cancelled)} of requests ({parts}); {percent(found.retries)} are retries; {wasted}"


def traffic_text(effects: "TrafficEffects", plans: Sequence["Deployment"]) -> str:
    """What the longest context makes of the load, each share above 0; the first plan's engine names it."""
    found = (
        (effects.conversations_cut, "conversations end early"),
        (effects.conversations_truncated, "conversations drop their oldest messages"),
        (effects.conversations_summarized, "conversations are summarized"),
        (effects.messages_shortened, "messages are shortened"),
        (effects.prompts_refused, "prompts are refused"),
        (effects.answers_cut, "answers are cut"),
    )
    is_made_up = effects.is_as_asked and effects.worst >= CUT_FROM
    least = 0.0 if effects.is_as_asked and not is_made_up else CUT_FROM / 10
    said = [f"{100 * share:.3g} % of {what}" for share, what in found if share and share >= least]
    name = words_of(plans[0].args).longest if plans else "max_model_len"
    at_limit = f"at {name} {effects.max_model_len:,}"
    mean, asked = round(effects.context_tokens), round(effects.asked_context_tokens)
    if is_made_up:
        return (
            f"requests have {mean:,} tokens of prompt and answer on average, as asked for: {joined(said)} {at_limit}, "
            "and all messages or passages are longer to make up for it"
        )
    if not effects.is_as_long:
        said.append(f"requests have {mean:,} tokens of prompt and answer on average instead of {asked:,}")
    return f"{joined(said)} {at_limit}{_way_out(effects, name, plans)}"


def _way_out(effects: "TrafficEffects", limit: str, plans: Sequence["Deployment"]) -> str:
    """What would serve traffic that is not as asked."""
    if effects.is_as_asked or not plans:
        return ""
    own, held = plans[0].architecture.max_position_embeddings, effects.held_from_tokens
    flag = f"--{limit.replace('_', '-')}"
    if effects.asked_context_tokens == 0:  # a trace's, whose longest request is not known here
        if effects.max_model_len < own:
            return f"; the model takes {flag} {own}"
        return ", the model's own limit; a model with a longer context would serve them whole"
    if held is not None and effects.max_model_len < min(held, own) and held <= own:
        return f"; {flag} {held} holds them"
    limited = ", the model's own limit" if effects.max_model_len >= own else f"; the model takes at most {own:,}"
    return limited + ("" if held is None else f"; a model with a context of {held:,} tokens holds them")


def about_meaning(step_time_errors: Iterable[float | None]) -> str:
    """What ≈ says of rows from few replications, by the share by which the steps of each may take longer."""
    errors = sorted({coarse_error(each) for each in step_time_errors})
    off = f"users may be off by {percent(errors[0])}"
    if len(errors) > 1:
        off += f", or by {percent(errors[1])} where steps may take at least {percent(UNSURE_STEPS)} longer"
    return f"≈: from few replications; {off}"


def joined(parts: Sequence[str]) -> str:
    """Such as `a, b and c`."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def found_text(low: int, mean: int, high: int) -> str:
    """Users that were found just now."""
    return f"{low:,} users {AT_CONFIDENCE} {interval_text(low, mean, high)}"


def interval_text(low: int, mean: int, high: int) -> str:
    """The mean and the interval, such as `(474 expected, 90 % interval 412 to 540)`."""
    return f"({mean:,} expected, 90 % interval {low:,} to {high:,})"


def safe_meaning(covered: str) -> str:
    """What users at 95 % confidence are; `covered` are the errors that their interval covers."""
    return (
        f"{SAFE}: concurrent users that 95 % of such fleets can serve. It is the lower end of a 90 % interval, which "
        f"covers {covered}."
    )


def slo_text(slo: "SLO") -> str:
    """The SLO in words that need no glossary."""
    limits = [f"a time to first token (TTFT) of at most {slo.ttft_text}"] if slo.ttft_s is not None else []
    limits += [f"a time per output token (TPOT) of at most {slo.tpot_s * 1e3:g} ms"] if slo.tpot_s is not None else []
    return f"{percent(slo.attainment)} of requests have " + " and ".join(limits)


def pace_text(tokens_per_s: float) -> str:
    """Such as `33 words/s (44 tokens/s)`."""
    return f"{_digits(WORDS_PER_TOKEN * tokens_per_s, 2)} words/s ({_digits(tokens_per_s, 3)} tokens/s)"


def _digits(value: float, digits: int) -> str:
    """With so many digits that count, and never as a power of ten."""
    return f"{float(f'{value:.{digits}g}'):,.10g}"


def promise_text(slo: "SLO") -> str:
    """The SLO without abbreviations: `95 % of answers begin within 1 s and continue at 15 words/s or more`."""
    parts = [f"begin within {slo.ttft_text}"] if slo.ttft_s is not None else []
    if slo.tpot_s is not None:
        tokens = 1 / slo.tpot_s
        parts.append(f"continue at {pace_text(tokens)} or more")
    return f"{percent(slo.attainment)} of answers {' and '.join(parts)}"


def reached_text(ttft_s: float | None, tpot_s: float | None) -> str:
    """Such as `95 % of answers begin within 1.2 s; 95 % continue at 33 words/s (44 tokens/s) or more`."""
    said = [] if ttft_s is None else [f"of answers begin within {seconds(ttft_s)}"]
    if tpot_s:
        of = "" if said else "of answers "
        said.append(f"{of}continue at {pace_text(1 / tpot_s)} or more")
    return "; ".join(f"95 % {text}" for text in said) or "No request was answered"


def weights_text(plan: "Deployment") -> str:
    """The weights' format; `none` alone would not say which."""
    name = plan.budget.quantization
    return f"{plan.architecture.dtype} (not quantized)" if name == "none" else name


def precision_text(plan: "Deployment") -> str:
    """The model with the format of its weights, and of its KV cache where that is another: `Qwen3-8B, fp8 weights`."""
    name, given = plan.budget.quantization, plan.given
    own = "16-bit weights" if plan.architecture.dtype in ("bfloat16", "float16") else "weights"
    weights = f"{own} ({plan.architecture.dtype}, not quantized)" if name == "none" else f"{name} weights"
    published = ", as published" if name != "none" and given.quantization in (None, "none") else ""
    cache = "" if plan.budget.kv_cache_dtype == "auto" else f", {plan.budget.kv_cache_dtype} KV cache"
    engine = f", {plan.title}" if isinstance(plan.args, SGLangArgs) else ""
    return f"{model_title(plan.architecture.name)}, {weights}{published}{cache}{engine}"


def model_title(name: str) -> str:
    """Without who publishes it: `Llama-3.1-8B-Instruct`."""
    return name.rstrip("/").rpartition("/")[2] or name


def kv_cache_text(plan: "Deployment") -> str:
    """The KV cache's format; `auto` alone would not say which."""
    name = plan.budget.kv_cache_dtype
    return f"{plan.architecture.dtype} (auto)" if name == "auto" else name


def ratio_text(ratio: "Interval | None") -> str:
    """Such as `+40 % (+35 to +46)`."""
    if ratio is None:
        return "serves no users with or without it"
    if max(ratio.mean, ratio.high) >= 10:  # beyond 1,000 % a factor reads better
        return f"× {ratio.mean:.3g} ({ratio.low:.3g} to {ratio.high:.3g})"
    mean, low, high = (100 * (value - 1) for value in (ratio.mean, ratio.low, ratio.high))
    return f"{signed(mean)} % ({signed(low)} to {signed(high)})"


EACH_GETS: Final = "service level"


GPUS_REMARK: Final = (
    "The cost per user assumes a fully loaded fleet. For a given number of users, whole servers of another GPU may "
    "cost less: see headcount plan."
)
