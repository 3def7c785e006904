"""The page on the memory model: its formulas, then others' worked examples beside it."""

from pathlib import Path

from calibrate.memory_formulas import formulas_section
from calibrate.worked_examples.example import Claim, claims_of, read_examples
from calibrate.worked_examples.page import EXAMPLES, claims_of_page, examples_section

_HEAD = (
    "# Where the bytes are\n\n"
    "How `headcount memory` counts, and what becomes of other people's sums under the same rules. This page is written "
    "by `headcount calibrate memory-page`: every number on it comes from the code, but for what others claim; the "
    "tests evaluate its formulas beside the code. Training is on a [page of its own](training-memory.md)."
)


def memory_page(claims: dict[str, Claim]) -> str:
    """Markdown."""
    return f"{_HEAD}\n\n{formulas_section()}\n{examples_section(claims)}"


def known_claims(examples: Path | None, page: Path) -> dict[str, Claim]:
    """Claims from the file of worked examples or, without one, from the page as it stands.

    Raises `ValueError` where neither has them.
    """
    if examples is not None:
        return claims_of(read_examples(examples), EXAMPLES)
    if not page.is_file():
        raise ValueError(f"{page} does not exist, so that its claims cannot be kept; give the file as --examples")
    try:
        text = page.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{page} is no text, so that its claims cannot be kept; name another, or move it") from None
    return claims_of_page(text)
