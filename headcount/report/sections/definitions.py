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
        "Share of requests that meet all limits jointly. A request that is unfinished at the end and has already "
        "missed a limit counts as a miss.",
    ),
    (
        "capacity (mean)",
        "The largest number of users whose mean attainment over the replications meets the target while no queue "
        "grows: the 95 % interval of the waiting queue's slope includes or lies below 0.",
    ),
    (
        "low, high",
        "A 90 % interval of the users served. It covers simulation noise (both ends of attainment's 95 % t-interval), "
        "step-time error (users if every step is longer or shorter by the error that covers 90 % of servers) and, if "
        "the interval of KV blocks is wider than ±2 %, the users at its ends. The errors are independent, so the "
        "squares of their logarithms add. The number to sign is low.",
    ),
    (
        "replica",
        "One vLLM server. TP4: four GPUs share each layer. DP2: two attention replicas, each an engine with its own KV "
        "blocks; in a mixture of experts they share the experts and take every step together.",
    ),
    ("what binds", "The limit that requests miss first just above the capacity, and the resource that causes it."),
    (
        "$/million output tokens",
        "Price of the GPUs for an hour divided by the output tokens of an hour, at the mean number of users.",
    ),
    ("warm-up", "The start of each replication, until requests in flight settle (MSER-5); left out of every figure."),
)


def render(answer: CapacityAnswer) -> str:
    return render_template("definitions.html", words=WORDS)
