"""What to mind: notes, and what the answer does not cover."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.parts import Folded, Part, Table, Text

TITLE = "Notes and limits"
ORDER = 90
SHOWN_BY = "any command"
KINDS = ("error", "warning", "assumption", "info")
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
    ("capacity", "The largest number of users whose expected attainment meets the target while no queue grows."),
    (
        "safe to promise",
        "The lower end of a 90 % interval of the users served. It covers simulation noise, step-time error and, where "
        "they matter, TTFT's own error and that of the KV cache's size. The errors are independent: squares of their "
        "logarithms add.",
    ),
    (
        "server",
        "What one command starts. TP4: four GPUs share each layer. DP2: two attention replicas, each an engine with "
        "its own KV blocks; in a mixture of experts they share the experts and take every step together.",
    ),
    ("what binds", "The limit that requests miss first just above the capacity, and the resource that causes it."),
    ("warm-up", "The first quarter of each replication, which starts with empty servers; left out of every figure."),
)


def parts(answer: ReadJson) -> Iterator[Part]:
    notes = sorted(answer["diagnostics"], key=lambda note: KINDS.index(note["severity"]))
    if notes:
        rows = [(note["text"], note["severity"], note["source"]) for note in notes]
        yield Table(title="Notes", columns=("note", "kind", "source"), rows=rows, text_columns=(0, 1, 2))
    if answer["report"].get("limits"):
        yield Text(text="Limits of this answer:", items=answer["report"]["limits"])
    words = Table(title="What the words mean", columns=("word", "meaning"), rows=WORDS, text_columns=(0, 1))
    yield Folded(title="What the words mean", parts=[words])
