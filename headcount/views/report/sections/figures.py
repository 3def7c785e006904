"""The answer's own tables and sentences, as the command prints them."""

from collections.abc import Iterator

from files.documents import ReadJson
from headcount.text.blocks import Line, block_of
from headcount.views.report.parts import Part, Table, Text

TITLE = "The answer in figures"
ORDER = 10
SHOWN_BY = "any command"


def parts(answer: ReadJson) -> Iterator[Part]:
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
