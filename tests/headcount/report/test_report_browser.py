"""Reports in a browser: what axe says of them, no complaint, no sideways scrolling, what goes to paper."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headcount as hc
from headcount.queries.result import Result
from headcount.views.report import document
from tests.headcount.report.test_report import ASKED, SMALL, answered

pytestmark = pytest.mark.slow
WIDTHS = (420, 768, 1280, 1920)


def planned() -> Result:
    """For employees, with prices of an API and a spare server."""
    return hc.plan(
        "qwen3-0.6b", employees=200, gpu=["h100-sxm", "l40s"], spare=1, api_input_price=0.1, api_output_price=0.4,
        precision=0.9, **SMALL,
    )  # fmt: skip


@pytest.fixture(scope="module", params=[*ASKED, "plan"])
def report(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    answer = planned() if request.param == "plan" else answered(request.param)
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(document.render(answer.to_json(report=True)), encoding="utf-8")
    return path


@pytest.fixture
def said() -> Iterator[list[str]]:
    """The console, which must stay empty."""
    found: list[str] = []
    yield found
    assert found == []


def opened(browser: Any, report: Path, said: list[str], **how: Any) -> Any:
    """The report with every section open."""
    page = browser.new_page(**how)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(report.as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_in_a_report(browser: Any, report: Path, said: list[str], scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe").Axe()
    page = opened(browser, report, said, color_scheme=scheme)
    found = axe.run(page).response["violations"]
    page.close()
    assert [each["id"] for each in found if each["impact"] in ("serious", "critical")] == []


def test_a_report_fits_every_window(browser: Any, report: Path, said: list[str]) -> None:
    page = opened(browser, report, said)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, width
    page.close()


def test_the_first_page_is_one_sheet_of_paper(browser: Any, report: Path, said: list[str]) -> None:
    """The other sections begin on the next; nothing is wider than an A4 sheet of 210 mm with margins of 14."""
    page = opened(browser, report, said, viewport={"width": 688, "height": 1017})
    page.emulate_media(media="print")
    first = page.locator("section.first").bounding_box()
    assert first["y"] + first["height"] <= 1017
    assert page.evaluate("document.documentElement.scrollWidth") <= 688
    page.close()
