"""Diagnostics, and what the answer does not cover."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.parts import Folded, Part, Table, Text

TITLE = "Diagnostics and limits"
ORDER = 90
SHOWN_BY = "any command"
KINDS = ("error", "warning", "assumption", "info")
WORDS = (
    ("users", "Active sessions N: open conversations, thinking or waiting. Not requests in flight."),
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
        "expected users",
        "The largest number of users at which the expected attainment meets the target and no queue keeps growing.",
    ),
    (
        "users at 95 % confidence",
        "Concurrent users that 95 % of such fleets can serve: the lower end of a 90 % interval of the users served. It "
        "covers simulation noise, step-time error and, where they matter, TTFT error and KV-cache size error. The "
        "errors are independent, so the squares of their logarithms add.",
    ),
    (
        "server",
        "What one command starts. TP4: four GPUs share each layer. DP2: two data-parallel ranks, each an engine with "
        "its own KV blocks. In a MoE model the ranks share the experts and run each step together.",
    ),
    ("bottleneck", "The limit that requests miss first just above the capacity, and the resource that causes it."),
    ("warm-up", "The first quarter of each replication, which starts with empty servers. No figure includes it."),
)


def parts(answer: ReadJson) -> Iterator[Part]:
    notes = sorted(answer["diagnostics"], key=lambda note: KINDS.index(note["severity"]))
    if notes:
        rows = [(note["text"], note["severity"], note["source"]) for note in notes]
        yield Table(
            title="Diagnostics", columns=("diagnostic", "severity", "source"), rows=rows, text_columns=(0, 1, 2)
        )
    if answer["report"].get("limits"):
        yield Text(text="Limits of this answer:", items=answer["report"]["limits"])
    words = Table(title="Glossary", columns=("word", "meaning"), rows=WORDS, text_columns=(0, 1))
    yield Folded(title="Glossary", parts=[words])
