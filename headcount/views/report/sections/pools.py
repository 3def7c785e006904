"""What both pools do with disaggregated prefill/decode."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.blocks import table_of
from headcount.text.pools import POOLS, handover_text
from headcount.views.report.parts import Part, Table, Text

TITLE = "Disaggregated prefill/decode"
ORDER = 16
SHOWN_BY = "headcount simulate or capacity --pools prefill=N,decode=N"


def parts(answer: ReadJson) -> Iterator[Part]:
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
