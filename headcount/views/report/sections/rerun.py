"""How to get the same figures again, with every input inside."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.parts import Command, File, Part, Table, Text

TITLE = "Run it again"
ORDER = 95
SHOWN_BY = "any command"


def parts(answer: ReadJson) -> Iterator[Part]:
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
