"""A command of a page and what it prints, as an animated picture: `python -m validation.pages.animated`.

The text is the page's own, so `python -m validation.pages --outputs` comes first. Lines appear one by one, faster than
the command prints them. Readers who ask for less motion see all of them at once.
"""

import textwrap
from html import escape
from pathlib import Path
from typing import Final

from validation.markdown import DOCS
from validation.pages.outputs import examples

PAGE: Final = DOCS / "how-to" / "first-hour.md"
BEGINS: Final = "headcount plan "
PICTURE: Final = DOCS / "pictures" / "plan-run.svg"
COLUMNS: Final = 104
_LINE_PX, _COLUMN_PX, _MARGIN_PX = 18, 7.3, 16
_TYPED_S, _THINKS_S, _LINE_S = 2.0, 0.6, 0.25
_STYLE: Final = """
text { font: 12px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d6deeb; white-space: pre }
.command { fill: #7fdbca }
.shown { fill-opacity: 0; animation: show 0.01s forwards }
@keyframes show { to { fill-opacity: 1 } }
@media (prefers-reduced-motion: reduce) { .shown { fill-opacity: 1; animation: none } }
"""


def animated(command: str, output: str) -> str:
    """The picture as SVG, without scripts; the command appears word by word, then its output line by line."""
    lines = [part for line in output.splitlines() for part in _wrapped(line)]
    width, height = int(COLUMNS * _COLUMN_PX) + 2 * _MARGIN_PX, (len(lines) + 1) * _LINE_PX + 2 * _MARGIN_PX
    words = command.split(" ")
    spans = [_shown("tspan", f" {word}", place * _TYPED_S / len(words)) for place, word in enumerate(words)]
    y = _MARGIN_PX + _LINE_PX // 2
    drawn = [f'<text class="command" x="{_MARGIN_PX}" y="{y}">${"".join(spans)}</text>']
    for place, line in enumerate(lines):
        y += _LINE_PX
        if line:
            at_s = _TYPED_S + _THINKS_S + place * _LINE_S
            drawn.append(_shown("text", line, at_s, x=_MARGIN_PX, y=y))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img">\n'
        f"<title>{escape(command)}</title>\n<style>{_STYLE}</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#011627"/>\n' + "\n".join(drawn) + "\n</svg>\n"
    )


def _wrapped(line: str) -> list[str]:
    wrapper = textwrap.TextWrapper(COLUMNS, replace_whitespace=False, drop_whitespace=False, subsequent_indent="    ")
    return wrapper.wrap(line) or [""]


def _shown(tag: str, text: str, at_s: float, **place: int) -> str:
    given = "".join(f' {name}="{value}"' for name, value in place.items())
    return f'<{tag} class="shown"{given} style="animation-delay:{at_s:.2f}s">{escape(text)}</{tag}>'


def page_example(page: Path = PAGE) -> tuple[str, str]:
    """The page's first example that begins so: the command and its output."""
    shown = examples(page.read_text(encoding="utf-8"))
    return next((code.strip(), text) for _, code, text in shown if code.startswith(BEGINS))


if __name__ == "__main__":
    PICTURE.write_text(animated(*page_example()), encoding="utf-8")
    print(f"wrote: {PICTURE.relative_to(DOCS.parent)}")
