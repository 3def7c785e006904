"""What serves the users: where their number comes from, what to start, what it holds and costs."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.blocks import table_of
from headcount.text.pools import POOLS, handover_text
from headcount.text.units import GIB, counted, gib
from headcount.views.report.charts.chart import Bar, Bars, Limit, Lines, Series
from headcount.views.report.parts import Command, Part, Table, Text
from headcount.views.report.sections import section

KV_CACHE = "KV cache"
MOST_BARS = 24


@section("From people to GPUs", 15, "headcount plan --employees N")
def demand(answer: ReadJson) -> Iterator[Part]:
    """From people to users, requests and GPUs."""
    found = answer["report"].get("demand")
    if found is None:
        return
    rows = [(link["meaning"], link["shown"], link["kind"], link["source"]) for link in found["links"]]
    yield Table(
        title="Where the demand assumptions come from",
        columns=("link", "value", "kind", "source"),
        rows=rows,
        text_columns=(0, 1, 2, 3),
    )
    yield Text(items=found["chain"])


@section("Disaggregated prefill/decode", 16, "headcount simulate or capacity --pools prefill=N,decode=N")
def pools(answer: ReadJson) -> Iterator[Part]:
    """What both pools do with disaggregated prefill/decode."""
    handover_s = answer.get("handover_s")
    if handover_s is None:
        return
    table = table_of(POOLS, answer["pools"])
    yield Table(title="Each pool over the whole run", columns=table.columns, rows=table.rows)
    dispatch = f"It includes {1e3 * answer['dispatch_s']:.3g} ms of dispatch. KV moves at "
    if answer.get("kv_transfer") == "push":
        dispatch = "Prefill engines push the KV, so there is no dispatch. KV moves at "
    yield Text(
        text=f"A KV transfer, from the end of the prefill to the first token, takes {handover_text(handover_s)}. "
        f"{dispatch}{answer['kv_transfer_bytes_per_s'] / 1e9:.3g} GB/s per GPU."
    )


@section("Deployment", 20, "headcount plan")
def deployment(answer: ReadJson) -> Iterator[Part]:
    """What to start."""
    found = answer["report"].get("deployment")
    if found is None:
        return
    count = found["servers"]
    each = "the server" if count == 1 else f"each of the {counted(count, 'server')} behind a router"
    yield Command(
        says=f"Start {each}, on {counted(found['gpus_per_server'], 'GPU')} ({found['gpu']}):", line=found["serve_line"]
    )
    rows = [(name, f"{value:,}" if isinstance(value, int) else f"{value}") for name, value in found["settings"].items()]
    engine = "SGLang" if "sglang_version" in found["settings"] else "vLLM"
    yield Table(
        title=f"Settings, given or {engine}'s defaults", columns=("setting", "value"), rows=rows, text_columns=(0, 1)
    )


@section("Memory of each GPU", 25, "headcount memory")
def memory(answer: ReadJson) -> Iterator[Part]:
    """Where each GPU's memory goes."""
    found = answer["report"].get("memory")
    if found is None:
        return
    total, begin, bars = found["total_bytes"], 0, []
    for part in found["parts"]:
        kind = "warning" if part["is_missing"] else "marked" if part["name"] == KV_CACHE else "plain"
        end = begin + part["bytes"]
        bars.append(Bar(part["name"], end / GIB, gib(part["bytes"]), kind, begin / GIB))
        begin = end
    limit = None if found["fits"] else Limit(total / GIB, f"the GPU's {total / GIB:,.1f} GiB")
    yield Bars(
        title=_memory_title(found), note=_memory_note(found), axis_name="GiB of one GPU", bars=bars, limit=limit,
        columns=("part", "size"),
    )  # fmt: skip


def _memory_title(found: ReadJson) -> str:
    where = f"{found['gpu']} at TP {found['tp']}"
    if not found["fits"]:
        return f"It does not fit on {where}: the parts pass the end of the GPU's memory"
    size = next((part["bytes"] for part in found["parts"] if part["name"] == KV_CACHE), 0)
    return f"{gib(size)} of each {where} hold the KV cache: {found['kv_cache_tokens']:,} tokens"


def _memory_note(found: ReadJson) -> str:
    if not found["fits"]:
        return ""
    low, high = found["num_gpu_blocks_low"], found["num_gpu_blocks_high"]
    size, share = found["block_size"], found["gpu_memory_utilization"]
    unit = size if found.get("engine") == "sglang" else 1
    interval = "as given" if low == high else f"90 % interval: {low * unit:,} to {high * unit:,}"
    if found.get("engine") == "sglang":
        return (
            f"{found['kv_cache_tokens']:,} tokens ({interval}), in pages of "
            f"{size}. 'activations, CUDA graphs' is what mem_fraction_static {share:g} leaves."
        )
    return (
        f"{found['num_gpu_blocks']:,} blocks of {size} tokens ({interval}); "
        f"they hold {found['max_concurrency']:,.1f} requests of the full {found['max_model_len']:,} tokens, or more "
        f"shorter ones. 'left to others': memory that gpu_memory_utilization {share:g} keeps from vLLM."
    )


@section("GPUs by users", 50, "headcount plan or capacity")
def staircase(answer: ReadJson) -> Iterator[Part]:
    """GPUs by users, with the spare servers."""
    found = answer["report"].get("staircase")
    if not found or len(found["steps"]) < 2:
        return
    steps = [step for step in found["steps"] if step["users"]]
    bought = next(step for step in steps if step["servers"] == found["bought"])
    spare = f", {counted(found['spare'], 'spare server')} included" if found["spare"] else ""
    needed, gpus = found["users_needed"], [step["gpus"] for step in steps]
    wanted = [] if needed is None else [Limit(needed, "users to serve", is_vertical=True)]
    # each number of GPUs carries all users up to what it serves
    server = gpus[1] - gpus[0] if len(gpus) > 1 else gpus[0]
    xs = [0.0, *(float(step["users"]) for step in steps)]
    ys = [float(gpus[0]), *(float(each + server) for each in gpus)]
    yield Lines(
        title=f"Up to {bought['users']:,} users on {counted(bought['gpus'], 'GPU')}{spare}",
        note="Users at 95 % confidence by number of GPUs, in whole servers and in proportion to what was simulated."
        + (" Spare servers are included in the GPUs, but serve no users." if found["spare"] else ""),
        x_name="users",
        y_name="GPUs",
        series=[Series("GPUs for more users", xs, ys, is_step=True)],
        limits=[*wanted, Limit(bought["gpus"], "bought")],
    )


@section("Layouts compared", 55, "headcount plan or compare")
def layouts(answer: ReadJson) -> Iterator[Part]:
    """What else was compared, and what it costs."""
    found = answer["report"].get("layouts")
    if not found:
        return
    if len(found["bars"]) > 1:
        yield Bars(
            title=found["title"],
            note="The marked bar is the best. Pale bars are estimates; those layouts were not simulated.",
            axis_name=found["axis"],
            text=found["text"],
            bars=[Bar(each["name"], each["value"], each["label"], each["kind"]) for each in found["bars"][:MOST_BARS]],
            columns=("layout", found["axis"]),
        )
    if found["rows"]:
        yield Table(
            title="Every layout", columns=found["columns"], rows=found["rows"], text_columns=found["text_columns"]
        )
    if found["said"]:
        yield Text(items=found["said"])


@section("Cost and break-even", 65, "headcount plan --api-input-price USD --api-output-price USD")
def cost(answer: ReadJson) -> Iterator[Part]:
    """What it costs, compared with an API."""
    found = answer["report"].get("cost")
    if not found:
        return
    if found["rows"]:
        yield Table(title="What the fleet costs", columns=("cost", "US dollars"), rows=found["rows"])
    yield Text(items=found["said"])
    even = found["break_even"]
    if even:
        yield Lines(
            title=found["title"],
            note="An API bills tokens, so its cost rises with users; own GPUs cost the same for any number of users.",
            x_name="users",
            y_name="US dollars a month",
            y_text="dollars",
            series=[Series(name, even["users"], usd) for name, usd in even["usd"].items()],
            limits=[Limit(even["today"], "users now", is_vertical=True)],
        )
