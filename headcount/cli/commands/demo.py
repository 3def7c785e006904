"""`headcount demo`: a first answer within seconds, each number explained."""

import click

from headcount.cli.command import Command
from headcount.queries.demo import GPU, MODEL, Demo, demo
from headcount.text.units import dollars, gib, milliseconds, percent, seconds, whole_dollars


@click.command("demo", cls=Command)
def command() -> int:
    """Show a first answer in a few seconds: one model on one GPU, with a line about each number.

    Nothing is simulated, so the number of users is an estimate. The commands at the end simulate.
    """
    found = demo()
    click.echo(f"How many people can chat with {found.budget.model} on one {GPU} at once?\n")
    rows = [*_memory(found), *_service(found)]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    for name, value, meaning in rows:
        click.echo(f"{name:<{widths[0]}}  {value:>{widths[1]}}  {meaning}".rstrip())
    same = f"--model {MODEL} --gpu {GPU}"
    click.echo(
        "\nUsers, rates and latencies are estimated: 92 % of such estimates lie within 25 % of a simulation.\n"
        "Simulate it, with the number to plan with (the first time compiles for 10 s to a minute):\n"
        f"  headcount capacity {same} --gpus 1\n"
        f"Find the cheapest GPUs for your users:\n  headcount plan --model {MODEL} --users 500"
    )
    return 0


def _memory(found: Demo) -> list[tuple[str, str, str]]:
    budget = found.budget
    other = budget.total_bytes - budget.weights_bytes - budget.available_kv_bytes
    left = f"activations, CUDA graphs, and what vLLM leaves free at {budget.gpu_memory_utilization:g}"
    return [
        ("GPU memory", gib(budget.total_bytes), "as the driver reports it"),
        ("− weights", gib(budget.weights_bytes), "the model, in 16 bits"),
        ("− other", gib(other), left),
        ("= KV cache", gib(budget.available_kv_bytes), f"{budget.kv_cache_tokens:,} tokens of context"),
        ("", "", ""),
    ]


def _service(found: Demo) -> list[tuple[str, str, str]]:
    estimate, slo = found.estimate, found.slo
    share, users = percent(slo.attainment), estimate.size
    ttft = f"time to the first token: {share} of requests are faster (limit {seconds(slo.ttft_s)})"
    tpot = f"time per token after it: {share} are faster (limit {milliseconds(slo.tpot_s)})"
    cost = f"a month at ${dollars(found.usd_per_hour)} an hour: ${dollars(found.usd_per_month / users)} per user"
    return [
        (
            "users",
            f"≈ {users:,.0f}",
            "open conversations, most of them reading or typing; as expected",
        ),
        ("think time", f"{found.think_time_s:.0f} s", "between an answer and the next message, on average"),
        ("requests", f"≈ {estimate.requests_per_s:.1f}/s", "messages of all users"),
        ("TTFT", f"≈ {seconds(estimate.ttft_s)}", ttft),
        ("TPOT", f"≈ {milliseconds(estimate.tpot_s)}", tpot),
        ("cost", f"${whole_dollars(found.usd_per_month)}", cost),
    ]
