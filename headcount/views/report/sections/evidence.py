"""The answer's figures, what they rest on, and how to get them again."""

from collections import Counter
from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.blocks import Line, block_of
from headcount.text.words import sentence
from headcount.views.report.charts.chart import Bar, Bars, Lines, Series
from headcount.views.report.parts import Command, File, Folded, Part, Table, Text
from headcount.views.report.sections import section

_ENDS = (
    ("users_at_step_time_error_high", "slower steps"), ("users_at_ttft_error_high", "longer TTFT"),
    ("users_at_kv_cache_low", "fewest KV blocks"), ("users", "as simulated"),
    ("users_at_kv_cache_high", "most KV blocks"), ("users_at_ttft_error_low", "shorter TTFT"),
    ("users_at_step_time_error_low", "faster steps"),
)  # fmt: skip
LONG = 12  # rows: more are folded
SEVERITIES = ("error", "warning", "assumption", "info")
GLOSSARY = (
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


@section("The answer in figures", 10, "any command")
def figures(answer: ReadJson) -> Iterator[Part]:
    """The answer's own tables and sentences, as the command prints them."""
    for block in map(block_of, answer["report"]["body"]):
        if isinstance(block, Line):
            if str(block).strip():
                yield Text(text=str(block).strip())
        elif block.rows:
            yield Table(
                title="",
                columns=block.columns,
                rows=[[cell.strip() for cell in row] for row in block.rows],
                text_columns=block.text_columns,
                bold_column=block.bold_column,
            )


@section("Calibration", 75, "headcount calibrate check")
def calibration(answer: ReadJson) -> Iterator[Part]:
    """How far simulated times are from measured ones."""
    report = answer["report"]
    if report.get("measured"):
        yield from _scatter(report["measured"])
    if report.get("step_time_error"):
        yield Text(text=f"{sentence(report['step_time_error'])}.")
    ends = report.get("ends")
    if ends and ends["users_at_step_time_error_high"] is not None:
        known = [(said, ends[name]) for name, said in _ENDS if ends[name] is not None]
        yield Bars(
            title=f"90 % interval: {ends['users_low']:,} to {ends['users_high']:,} users",
            note="Users at the ends of each error. To narrow the interval, measure "
            "your server: headcount calibrate record, fit and check.",
            axis_name="users",
            bars=[
                Bar(said, users, f"{users:,}", "marked" if said == "as simulated" else "plain") for said, users in known
            ],
        )


def _scatter(found: ReadJson) -> Iterator[Part]:
    series = [
        Series(each["name"], each["measured_s"], each["simulated_s"], has_line=False, has_points=True)
        for each in found["latencies"]
    ]
    if series:
        yield Lines(
            title="Mean latencies by run, simulated and measured",
            note="On the line both are equal. Both axes are logarithmic. Overloaded runs are left out.",
            x_name="measured", y_name="simulated", x_text="time", y_text="time", series=series, is_equal=True,
        )  # fmt: skip
    if found["rows"]:
        columns = ("run", "latency", "measured", "simulated", "error")
        yield Table(title="Each run", columns=columns, rows=found["rows"], text_columns=(0, 1))
    for each in found["distributions"]:
        shares = [value / 100 for value in found["percentiles"]]
        yield Lines(
            title=f"{each['latency']} of {each['run']}", x_name=each["latency"], y_name="requests", x_text="time",
            y_text="percent", note="Share of requests at or below each time.", is_log=True,
            series=[Series(name, [max(value, 1e-5) for value in each[f"{name}_s"]], shares)
                    for name in ("measured", "simulated")],
        )  # fmt: skip


@section("The workload", 80, "headcount workload describe")
def traffic(answer: ReadJson) -> Iterator[Part]:
    """What is in a workload: when requests arrive, how long they are, what a prefix cache finds."""
    report = answer["report"]
    if report.get("workload"):
        yield Text(text=report["workload"])
    found = report.get("traffic") or {}
    if found.get("rate"):
        rate = found["rate"]
        minutes = [value / 60 for value in rate["time_s"]]
        yield Lines(
            title="When requests arrive",
            note=rate["note"],
            x_name="minutes from the first request",
            y_name="requests/s",
            series=[Series("requests/s", minutes, rate["per_s"], is_step=True)],
        )
    if found.get("lengths"):
        lengths = found["lengths"]
        shares = [value / 100 for value in lengths["percentiles"]]
        yield Lines(
            title="How long prompts and answers are", note="Share of requests up to each length.", x_name="tokens",
            y_name="requests", y_text="percent", is_log=True,
            series=[Series(name, [max(value, 1) for value in lengths[name]], shares) for name in ("prompt", "answer")],
        )  # fmt: skip
    if found.get("reuse"):
        reuse = found["reuse"]
        yield Lines(
            title="What a prefix cache would find",
            note="One cache, requests one after the other; a server's cache also holds what is being answered.",
            x_name="KV cache, tokens", y_name="prompt blocks found", y_text="percent", is_log=True,
            series=[Series("found", reuse["tokens"], reuse["hit_rate"])],
        )  # fmt: skip


@section("Assumptions and sources", 85, "any command that simulates")
def assumptions(answer: ReadJson) -> Iterator[Part]:
    """What the answer rests on: each figure with its source, and whether it was measured, specified or assumed."""
    found = answer["report"].get("assumptions")
    if not found:
        return
    kinds = Counter(row["kind"] for row in found)
    told = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    yield Text(text=f"{len(found)} figures: {told}.")
    for part in dict.fromkeys(row["part"] for row in found):
        rows = [[row[name] for name in ("name", "value", "kind", "source")] for row in found if row["part"] == part]
        title, columns = f"{part[0].upper()}{part[1:]}", ("what", "value", "kind", "source")
        table = Table(title=title, columns=columns, rows=rows, text_columns=(0, 1, 2, 3))
        yield Folded(title=f"{title}: {len(rows)} figures", parts=[table]) if len(rows) > LONG else table


@section("Diagnostics and limits", 90, "any command")
def limits(answer: ReadJson) -> Iterator[Part]:
    """Diagnostics, and what the answer does not cover."""
    notes = sorted(answer["diagnostics"], key=lambda note: SEVERITIES.index(note["severity"]))
    if notes:
        rows = [(note["text"], note["severity"], note["source"]) for note in notes]
        yield Table(
            title="Diagnostics", columns=("diagnostic", "severity", "source"), rows=rows, text_columns=(0, 1, 2)
        )
    if answer["report"].get("limits"):
        yield Text(text="Limits of this answer:", items=answer["report"]["limits"])
    words = Table(title="Glossary", columns=("word", "meaning"), rows=GLOSSARY, text_columns=(0, 1))
    yield Folded(title="Glossary", parts=[words])


@section("Run it again", 95, "any command")
def rerun(answer: ReadJson) -> Iterator[Part]:
    """How to get the same figures again, with every input inside."""
    report = answer["report"]
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    seed = f" with seed {report['seed']}" if "seed" in report else ""
    yield Command(says=f"The same question{seed} and the same versions give the same figures:", line=report["asked"])
    yield Text(text=f"Made on {report['date']} with {versions}.")
    if report["inputs"]:
        rows = [(item["name"], item["argument"], f"{item['bytes']:,}", item["sha256"]) for item in report["inputs"]]
        yield Table(
            title="Files that were read", columns=("file", "as", "bytes", "SHA-256"), rows=rows, text_columns=(0, 1, 3)
        )
    for item in report["inputs"]:
        if item["text"] is not None:
            yield File(name=item["name"], text=item["text"], says=f"{item['name']}, as it was read")
        else:
            yield Text(text=f"{item['name']} is too large to be stored in the report; keep it next to this report.")
