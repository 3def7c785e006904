"""The pictures in the docs are those of the commands beside them."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from validation.markdown import DOCS
from validation.pages.animated import PICTURE, animated, page_example
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


def test_the_animated_picture_is_of_the_page_s_command_and_runs_nothing() -> None:
    command, output = page_example()
    made = animated(command, output)
    assert PICTURE.read_text(encoding="utf-8") == made, "run 'python -m validation.pages.animated'"
    assert len(made.encode()) <= LARGEST_BYTES
    assert "<script" not in made
    assert "http" not in made.replace("http://www.w3.org/2000/svg", "")


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=150), min_size=1))
def test_an_animated_picture_shows_every_line_in_order_and_in_its_frame(lines: list[str]) -> None:
    svg = ElementTree.fromstring(animated("headcount plan <now>", "\n".join(lines)))
    texts = [each for each in svg.iter() if each.tag.endswith("}text")]
    shown = "".join("".join(each.itertext()).strip() for each in texts[1:])
    assert shown == "".join(lines)
    times = [float(each.get("style", "").split(":")[1].rstrip("s")) for each in texts[1:]]
    assert times == sorted(times)
    _, _, _, height = map(float, svg.get("viewBox", "").split())
    assert all(0 < float(each.get("y", "")) < height for each in texts)
