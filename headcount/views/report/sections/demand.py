"""From people to users, requests and GPUs."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.parts import Part, Table, Text

TITLE = "From people to GPUs"
ORDER = 15
SHOWN_BY = "headcount plan --employees N"


def parts(answer: ReadJson) -> Iterator[Part]:
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
