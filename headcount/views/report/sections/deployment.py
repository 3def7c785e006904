"""What to start."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.units import counted
from headcount.views.report.parts import Command, Part, Table

TITLE = "Deployment"
ORDER = 20
SHOWN_BY = "headcount plan"


def parts(answer: ReadJson) -> Iterator[Part]:
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
