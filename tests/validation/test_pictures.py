"""The pictures in the docs are those of the commands beside them."""

import re
from pathlib import Path

import pytest

from validation.markdown import DOCS
from validation.pages.pictures import drawn, illustrated

QUESTIONS = DOCS / "how-to" / "questions.md"
FOLDER = DOCS / "pictures" / "questions"
SHOWN = list(illustrated(QUESTIONS))
LARGEST_BYTES = 20_000
RUN = [each for each in SHOWN if re.match(r"headcount (memory|simulate)\b", each[0])]  # the others take minutes
EXACT = re.compile(r"headcount memory\b")  # a processor's rounding is not seen


def test_every_question_has_its_picture_and_its_answer_in_words() -> None:
    questions = re.findall(r"^### (.*)$", QUESTIONS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(questions) == len(SHOWN) >= 25
    assert [command for command, words, picture in SHOWN if not words or not picture.is_file()] == []


def test_no_picture_is_large_nor_shown_nowhere() -> None:
    pictures = sorted(FOLDER.glob("*"))
    assert pictures == sorted(picture for _, _, picture in SHOWN)
    assert [path.name for path in pictures if path.stat().st_size > LARGEST_BYTES] == []
    assert all("<title>" in path.read_text(encoding="utf-8") for path in pictures)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "words", "picture"), RUN, ids=[picture.stem for _, _, picture in RUN])
def test_a_picture_is_what_its_command_writes(command: str, words: str, picture: Path) -> None:
    answer, svg = drawn(command)
    titles = [re.findall(r"<title>([^<]*)", text)[0] for text in (svg, picture.read_text(encoding="utf-8"))]
    assert re.sub(r"[\d.,]+", "#", titles[0]) == re.sub(r"[\d.,]+", "#", titles[1])
    if EXACT.match(command):
        assert (answer, svg) == (words, picture.read_text(encoding="utf-8"))
