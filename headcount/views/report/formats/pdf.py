"""The page as it prints, with every section open."""

import re
from importlib.util import find_spec

from files.errors import HeadcountError
from files.reading import InputError
from headcount.views.report.document import Report
from headcount.views.report.formats import html


def missing() -> str:
    """WeasyPrint, which lays out pages, and what a page needs."""
    return html.missing() or ("" if find_spec("weasyprint") else "a PDF needs WeasyPrint; install headcount[pdf]")


def made(report: Report) -> bytes:
    """Raises InputError where a library that WeasyPrint needs is missing; it loads nothing from anywhere."""
    try:
        from weasyprint import HTML  # noqa: PLC0415  an optional extra
    except OSError as error:
        raise InputError(f"WeasyPrint finds no Pango ({error}); install it, or print the .html report") from None
    found: bytes = HTML(string=_plain(html.page(report, is_printed=True)), url_fetcher=_refused).write_pdf()
    return found


def _refused(url: str, *_: object, **__: object) -> dict[str, object]:
    raise HeadcountError(f"a report loads nothing, and so not {url[:80]}")


def _plain(page: str) -> str:
    """Drawings with their own colours: WeasyPrint gives a drawing no style of the page around it."""
    style = re.search(r"/\* drawings \*/(.*?)/\* end \*/", page, re.DOTALL)
    colours = dict(re.findall(r"(--\w+): (#\w+)", page[: page.index("@media")]))
    assert style is not None, "the page has a style for drawings"
    rules = re.sub(r"var\((--\w+)\)", lambda found: colours[found[1]], style[1]).replace("svg ", "")
    return re.sub(r"(<svg [^>]*>)", lambda found: f"{found[1]}<style>{rules}</style>", page)
