"""What it costs, compared with an API."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.views.report.charts.chart import Limit, Lines, Series
from headcount.views.report.parts import Part, Table, Text

TITLE = "Cost and break-even"
ORDER = 65
SHOWN_BY = "headcount plan --api-input-price USD --api-output-price USD"


def parts(answer: ReadJson) -> Iterator[Part]:
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
            series=[
                Series(name, even["users"], even[usd]) for name, usd in (("API", "api_usd"), ("own GPUs", "own_usd"))
            ],
            limits=[Limit(even["today"], "users now", is_vertical=True)],
        )
