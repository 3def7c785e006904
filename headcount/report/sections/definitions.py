"""What the words mean."""

from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import render_template

TITLE = "What the words mean"
ORDER = 80

WORDS = (
    ("users", "Active sessions N: open conversations, thinking or waiting. Never requests in flight."),
    ("in flight", "Requests sent and not finished, L = running + waiting."),
    (
        "think time Z",
        "From the end of an answer to the next request of the session. With response time R: requests per second "
        "λ = N / (Z + R), in flight L = λR.",
    ),
    ("TTFT", "Time to first token: from arrival at the server to the first token, queueing included."),
    ("TPOT", "Time per output token: (end-to-end time − TTFT) / (output tokens − 1), per request."),
    (
        "attainment",
        "Share of requests that meet all limits jointly; requests unfinished at the end that already missed count as "
        "misses.",
    ),
    (
        "capacity (mean)",
        "The largest number of users whose mean attainment over the replications meets the target while no queue "
        "grows: the 95 % interval of the waiting queue's slope includes or lies below 0.",
    ),
    (
        "low, high",
        "A 90 % interval of the users served. It joins what the replications leave open, from the ends of attainment's "
        "95 % t-interval, with how far step times may be off: the users served where every step is as much longer or "
        "shorter as nine in ten servers show; and, where the interval of KV blocks is wider than ±2 %, with the users "
        "served at its ends. Logarithms add as independent errors do. The number to sign is low.",
    ),
    (
        "replica",
        "One vLLM server; TP4 is four GPUs that share each layer, DP2 two attention replicas, engines "
        "with KV blocks of their own. A mixture's share the experts and take every step together.",
    ),
    ("what binds", "The limit that requests miss first just above the capacity, with the resource behind it."),
    (
        "$/million output tokens",
        "The GPUs' price for an hour over the output tokens of an hour, at the mean number of users.",
    ),
    ("warm-up", "The start of each replication, until requests in flight settle (MSER-5); left out of every figure."),
)


def render(answer: CapacityAnswer) -> str:
    return render_template("definitions.html", words=WORDS)
