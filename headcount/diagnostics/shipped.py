"""The diagnostics that are shipped, by code: when each applies, and what it says."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from headcount.diagnostics import Facts, Severity
from headcount.text import words
from headcount.text.units import seconds
from kvcache.releases import newer_than_known
from simulator.engines.engines import SGLANG, VLLM, engine_of
from simulator.engines.vllm.compilation import NONE
from simulator.latency.evidence import EVERY_KERNEL
from simulator.latency.gpu_constants import FEW_RUNS, KERNELS, measured_text
from simulator.latency.model import HOST, breakdown, step_without_prefill, steps_outside
from simulator.study.bottleneck import STREAMED_SOURCE, STREAMED_TOKENS_PER_S

if TYPE_CHECKING:
    from simulator.deployment import Deployment

Found = Iterator[tuple[str, str]]
"""Texts and their sources."""
FAR: Final = 2  # times what 99 % of requests have
FROM_SHARE: Final = 0.01  # of the traffic or of the requests: less is no warning
TIMES_OF_SGLANG: Final = (
    "SGLang is simulated with vLLM's step times; their median error on the mean TPOT of 201 public SGLang settings "
    "is 8 %, which the interval covers. A comparison with vLLM shows what the schedulers do, not whose kernels are "
    "faster"
)


@dataclass(frozen=True)
class Shipped:
    """The same names as a diagnostic's file has."""

    SEVERITY: Severity
    REMEDY: str
    find: Callable[[Facts], Found]


SHIPPED: dict[str, Shipped] = {}


def diagnostic(severity: Severity, remedy: str = "") -> Callable[[Callable[[Facts], Found]], Callable[[Facts], Found]]:
    """Ships a function under its name."""

    def shipped(find: Callable[[Facts], Found]) -> Callable[[Facts], Found]:
        SHIPPED[find.__name__] = Shipped(severity, remedy, find)
        return find

    return shipped


@diagnostic(Severity.WARNING)
def api_servers_bind(facts: Facts) -> Found:
    """Requests spend most of their TTFT at API servers, not in the engine."""
    for whose, plan in facts.api_servers_bind:
        times = plan.latency.step_times
        rate = f"{1 / times.ingress_token_s:,.0f} prompt tokens/s" if times.ingress_token_s else "requests one by one"
        more = "raise --api-server-count" if engine_of(plan.args) == VLLM else "send shorter prompts, or add replicas"
        yield (
            f"{f'{whose}: ' if whose else ''}the API server is the bottleneck: each ({plan.api_servers} a server) "
            f"takes {rate}, tokens of cached prefixes too; {more}, which shortens the queue before it",
            "docs/explanation/step-times.md, the front end",
        )


@diagnostic(Severity.WARNING)
def beyond_model_length(facts: Facts) -> Found:
    """The longest context that is asked for is longer than the model's."""
    model = facts.architecture
    if model is None or facts.max_model_len is None or not facts.allows_longer:
        return
    if facts.max_model_len > model.max_position_embeddings:
        asked = f"{words.longest_name(facts.engine)} {facts.max_model_len:,}"
        yield (
            f"{asked} is longer than the {model.max_position_embeddings:,} tokens that "
            f"{model.name} supports: the server starts only with {facts.allows_longer}",
            "",
        )


@diagnostic(Severity.INFO)
def context_far_below_limit(facts: Facts) -> Found:
    """The longest context that is asked for is over twice as long as 99 % of requests: it makes none of them longer."""
    longest, usual = facts.max_model_len, facts.usual_context
    if longest is None or usual is None or longest <= FAR * usual:
        return
    name = words.longest_name(engine_of(facts.plans[0].args)) if facts.plans else words.longest_name("vllm")
    yield (
        f"{name} {longest:,} only limits requests; it does not make them longer. 99 % of requests have at most "
        f"{usual:,} tokens of prompt and answer; for longer requests add --traffic context=x{longest // usual}",
        "",
    )


@diagnostic(Severity.ERROR)
def does_not_fit(facts: Facts) -> Found:
    """vLLM would not start."""
    if facts.why_unfit is not None:
        yield facts.why_unfit, ""


@diagnostic(Severity.WARNING)
def draft_acceptance_assumed(facts: Facts) -> Found:
    """Nobody says how many draft tokens are accepted: a published rate of the method is taken."""
    drafts = facts.speculation
    if drafts is not None and drafts.assumed_acceptance:
        yield (
            f"acceptance of draft tokens is assumed: {drafts.tokens_per_step:.2f} tokens per step "
            f"({drafts.assumed_acceptance}); yours depends on model and text: give its acceptance_rate in the JSON of "
            "--speculative-config",
            "simulator/engines/vllm/acceptance.toml",
        )


@diagnostic(Severity.ASSUMPTION)
def encoder_time_not_measured(facts: Facts) -> Found:
    """How long images take in the encoder rests on the constants of the language model."""
    for plan, step in facts.steps:
        if step.encoder_s:
            share = step.encoder_s / sum(breakdown(plan.latency, step).values())
            yield (
                f"images take {100 * share:.1f} % of the step time of {plan.architecture.name}, in its encoder. It is "
                "worked out from the constants of the language model: its error is not measured, and the interval does "
                "not cover it",
                "simulator/latency/encoder.py",
            )


@diagnostic(Severity.WARNING)
def environment_not_modelled(facts: Facts) -> Found:
    """An environment variable of the server may change the answer, but is not modelled."""
    for variable in facts.environment:
        yield f"{variable} is not modelled: the answer ignores it", ""


@diagnostic(Severity.INFO)
def fleet_scaled(facts: Facts) -> Found:
    """A fleet is larger than what was simulated together."""
    for simulated, servers in facts.scaled:
        yield (
            f"users of {servers:,} servers are scaled from {simulated:,} servers that were simulated together, less "
            "the estimated loss of prefix hits",
            "docs/measurements/large-fleets.md",
        )


@diagnostic(Severity.ASSUMPTION)
def host_link_assumed(facts: Facts) -> Found:
    """The rate at which KV is copied to and from CPU memory is assumed, since none is published for the GPU."""
    for plan in facts.plans:
        host = plan.budget.host
        if host is not None and plan.gpu.host_link_bytes_per_s is None:
            name, value, source = host.link
            yield f"{name}: {value}", source


@diagnostic(Severity.WARNING)
def inconclusive(facts: Facts) -> Found:
    """The replications ended before the capacity was known as precisely as asked."""
    for whose, precision, replications in facts.imprecise:
        known = f"±{precision:.2%}" if precision < 1 else "more than ±100%"
        yield (
            f"{whose}: simulation noise is still {known} of the users after {replications} replications; "
            "run more with --replications, or accept it with --precision",
            "",
        )


@diagnostic(Severity.WARNING)
def kv_cache_near_limit(facts: Facts) -> Found:
    """The error of the KV cache's size takes more than half of the users: with a little less, caches lose prefixes."""
    for whose, row in facts.near_limit:
        if row.is_near_kv_limit and row.plan is not None:
            unit, _, fewest, most = words.kv_pool(row.plan.budget)
            yield (
                f"{whose}: capacity is {row.users_at_kv_cache_low:,} users with {fewest:,} KV {unit}, the low end of "
                f"their interval, and {row.users_at_kv_cache_high:,} with {most:,}, the high end; narrow the interval "
                "with --startup-log",
                "",
            )


@diagnostic(Severity.WARNING)
def log_contradicted(facts: Facts) -> Found:
    """A start-up log says two things of one server, or is not of the model that is asked about."""
    yield from ((text, "") for text in facts.log_contradictions)


@diagnostic(Severity.WARNING)
def logged_arguments_missing(facts: Facts) -> Found:
    """Arguments are taken as vLLM's defaults, because the start-up log does not hold them."""
    if facts.missing_in_log:
        yield (
            f"the start-up log lacks {', '.join(facts.missing_in_log)}: arguments that are neither in it nor given "
            "here are vLLM's defaults, such as gpu_memory_utilization",
            "",
        )


@diagnostic(Severity.WARNING)
def logged_arguments_not_used(facts: Facts) -> Found:
    """A start-up log holds arguments that may change the answer, but are not used."""
    if facts.unused_arguments:
        yield f"arguments of the start-up log that are not used: {', '.join(facts.unused_arguments)}", ""


@diagnostic(Severity.WARNING)
def may_queue(facts: Facts) -> Found:
    """The error of step times allows that a load queues, and that it does not."""
    remedy = "to know, fit step times to your server: headcount calibrate fit"
    if facts.may_queue is not None:
        factor, simulated_s, other_s = facts.may_queue
        yield (
            f"this load may or may not queue: the mean TTFT is {seconds(simulated_s)} as simulated, and "
            f"{seconds(other_s)} with steps {factor:.2f} × as long, which is within their error; {remedy}",
            "",
        )
    for whose, row in facts.near_limit:
        if row.may_queue:
            yield (
                f"{whose}: {row.users:,} users may or may not queue: with steps {row.step_time_error:.0%} longer, "
                f"which is within their error, {row.users_at_step_time_error_high:,} are served; {remedy}",
                "",
            )


@diagnostic(Severity.ASSUMPTION)
def memory_terms(facts: Facts) -> Found:
    """Where the sizes of a memory budget come from."""
    for name, value, source in facts.terms:
        yield f"{name}: {value}", source


@diagnostic(Severity.WARNING)
def newer_release(facts: Facts) -> Found:
    """The rules of an older release apply."""
    newer = None if facts.vllm_version is None else newer_than_known(facts.vllm_version)
    if newer is not None:
        yield f"--vllm-version {newer}", ""


@diagnostic(Severity.ASSUMPTION)
def not_simulated(facts: Facts) -> Found:
    """vLLM would do by default what the simulation leaves out."""
    for plan in facts.plans:
        for name, value, why in plan.not_simulated:
            yield f"assumed: {name}, {value}", why


@diagnostic(Severity.WARNING, "fit a profile to a server and load like these")
def outside_profile(facts: Facts) -> Found:
    """The deployment or its load lies outside what the latency profile was fitted on."""
    for plan in facts.plans:
        yield from ((text, "") for text in plan.latency.warnings)
    for plan, step in facts.steps:
        yield from ((text, "") for text in steps_outside(plan.latency, step))


@diagnostic(Severity.WARNING)
def requests_cancelled(facts: Facts) -> Found:
    """At least 1 % of requests are cancelled: they missed the SLO, and latencies are those of the others."""
    found = facts.cancelled
    if found is not None and found.cancelled >= FROM_SHARE:
        others = "each counts as an SLO miss; latencies are of the other requests only"
        by = "cancelled by clients" if not found.rejected else "without a complete answer"
        yield f"{by}: {words.cancelled_text(found)}; {others}", ""


@diagnostic(Severity.ERROR)
def slo_missed(facts: Facts) -> Found:
    """No load that was tried meets the SLO."""
    if facts.why_missed is not None:
        yield facts.why_missed, ""


@diagnostic(Severity.INFO)
def step_time_error(facts: Facts) -> Found:
    """How far step times may be off."""
    said: dict[str, str] = {}  # of the first plan on each kind of GPU, with drafts and without; the first of all leads
    for plan in facts.plans:
        name = f"{plan.gpu.name}{' with speculative decoding' if plan.args.speculation else ''}"
        if name not in said:
            sequences = next((step.sequences for other, step in facts.steps if other is plan), facts.sequences)
            said[name] = words.step_time_error(plan.latency, sequences)
    for name, text in said.items():
        yield f"{name}: {text}" if len(said) > 1 else text, ""


@diagnostic(Severity.ASSUMPTION, "choose a measured GPU, or give --latency-model constant with your own --step-s")
def step_times_not_measured(facts: Facts) -> Found:
    """Of this GPU, or of parts of the step times on it, few whole runs were measured, or kernels alone, or nothing."""
    for plan in facts.plans:
        if plan.latency.is_measured and measured_text(plan.gpu) == FEW_RUNS:
            yield f"step times of {plan.gpu.name}: few runs measured, of one dense model", ""
        if not (plan.latency.is_measured or plan.latency.is_given):
            parts = [part for part in plan.latency.unmeasured if part != EVERY_KERNEL]
            text = measured_text(plan.gpu)
            if parts:
                yield f"step times of {', '.join(parts)} on {plan.gpu.name}: specifications only; the rest: {text}", ""
            else:
                yield f"step times of {plan.gpu.name}: {text}{', no complete runs' if text == KERNELS else ''}", ""


@diagnostic(
    Severity.ASSUMPTION,
    "fit step times to your SGLang server (headcount calibrate fit --engine sglang), or give your own --step-s",
)
def step_times_of_sglang(facts: Facts) -> Found:
    """Steps of SGLang take vLLM's times."""
    if any(takes_times_of_vllm(plan) for plan in facts.plans):
        yield TIMES_OF_SGLANG, "docs/measurements/sglang.md"


def takes_times_of_vllm(plan: "Deployment") -> bool:
    """Whether a server runs SGLang, and nobody has measured its steps."""
    return engine_of(plan.args) == SGLANG and not (plan.latency.calibrated or plan.latency.is_given)


@diagnostic(Severity.WARNING)
def host_binds(facts: Facts) -> Found:
    """Without CUDA graphs, decode steps take as long as the host takes to launch them, and the GPU waits."""
    for plan, step in facts.steps:
        if plan.args.cudagraph_mode != NONE:
            continue
        of_decode, launch_s = breakdown(plan.latency, step_without_prefill(step)), plan.latency.step_times.host_base_s
        gpu_s = sum(of_decode.values()) - of_decode[HOST]
        if launch_s > gpu_s:
            yield (
                f"decode steps of {plan.architecture.name} wait for the CPU: without CUDA graphs it takes "
                f"{seconds(launch_s)} to launch one, which the GPU computes in {seconds(gpu_s)}. Leave --enforce-eager "
                "out; another CPU is --host-speed",
                "docs/explanation/step-times.md",
            )


@diagnostic(Severity.WARNING)
def streamed_beyond_measured(facts: Facts) -> Found:
    """Each API server would have to stream more tokens/s than one was measured to on a slow host."""
    on_own_host = any(plan.args.host_speed != 1 for plan in facts.plans)
    for whose, tokens_per_s in facts.streamed:
        if tokens_per_s > STREAMED_TOKENS_PER_S and not on_own_host:
            yield (
                f"{f'{whose}: ' if whose else ''}each API server would stream {tokens_per_s:,.0f} tokens/s; one was "
                f"measured to stream {STREAMED_TOKENS_PER_S:,} on a virtual machine: for such a host give --host-speed "
                "0.5. Raise --api-server-count, or start vLLM with --stream-interval 20",
                STREAMED_SOURCE,
            )


@diagnostic(Severity.INFO)
def trace(facts: Facts) -> Found:
    """Rows of a trace are left out, or something of it is taken for granted."""
    for text in facts.trace:
        yield text, ""


@diagnostic(Severity.WARNING)
def traffic_cut(facts: Facts) -> Found:
    """At least 1 % of conversations, messages, prompts or answers are cut, or requests are shorter on average."""
    if facts.traffic is not None and not facts.traffic.is_as_asked:
        said = words.traffic_text(facts.traffic, facts.plans)
        yield f"{facts.traffic_of}: {said}" if facts.traffic_of else said, ""


@diagnostic(Severity.INFO)
def traffic_rarely_cut(facts: Facts) -> Found:
    """Few conversations, messages, prompts or answers are cut, or the mean context that was asked for is kept."""
    if facts.traffic is not None and facts.traffic.is_as_asked and facts.traffic.worst:
        said = words.traffic_text(facts.traffic, facts.plans)
        yield f"{facts.traffic_of}: {said}" if facts.traffic_of else said, ""


@diagnostic(Severity.WARNING)
def ttft_near_limit(facts: Facts) -> Found:
    """TTFT's own error takes more than half of the users, because its limit is near at any load."""
    for whose, row in facts.near_limit:
        if row.is_near_ttft_limit:
            yield (
                f"{whose}: if TTFT is {row.ttft_error:.0%} longer than simulated, which is within its error, capacity "
                f"falls from {row.users:,} to {row.users_at_ttft_error_high:,} users; relax --ttft",
                "",
            )


@diagnostic(
    Severity.ASSUMPTION,
    "choose a model whose model_type is known, or give the config.json of the checkpoint itself",
)
def unknown_architecture(facts: Facts) -> Found:
    """The model's shape rests on an assumption."""
    for name, value, why in () if facts.architecture is None else facts.architecture.assumptions:
        yield f"assumed: {name}, {value}", why
