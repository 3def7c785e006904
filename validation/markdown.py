"""Tables of docs pages that are made from code or from results.

A table stands between `<!-- generated: NAME -->` and `<!-- end -->`; the rest of its page is written by hand.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

DOCS = Path(__file__).parents[1] / "docs"
MARKED = re.compile(r"(<!-- generated: ([a-z0-9-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def filled(page: str, tables: Mapping[str, Callable[[], str]]) -> str:
    """The page with its tables written anew. Raises ValueError for a marker without a table, or the reverse."""
    marked = {name for _, name, _ in MARKED.findall(page)}
    if strange := sorted(marked ^ set(tables)):
        raise ValueError(f"the page and the tables disagree about {', '.join(strange)}; mend the page's markers")
    return MARKED.sub(lambda match: f"{match[1]}{tables[match[2]]()}\n{match[3]}", page)
