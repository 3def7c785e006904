"""The site's menu, the headings and links of README.md in their order; links to files that the site lacks are text."""

import re
from pathlib import Path
from typing import Any

HEADING, LINK = re.compile(r"^## (.+)"), re.compile(r"(?<!!)\[([^\]]+)\]\(([^)#:]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """Called once, before the pages are read."""
    config.nav = [{"Start": "README.md"}, *_sections(Path(config.docs_dir) / "README.md")]
    return config


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """Called for each page."""
    root = Path(config.docs_dir).resolve()
    on_site = {str(root / file.src_uri) for file in files.documentation_pages()}
    here = (root / page.file.src_uri).parent

    def linked(link: re.Match[str]) -> str:
        return link[0] if str((here / link[2]).resolve()) in on_site else link[1]

    return LINK.sub(linked, markdown)


def _sections(index: Path) -> list[dict[str, Any]]:
    sections: list[dict[str, Any]] = []
    for line in index.read_text(encoding="utf-8").splitlines():
        if heading := HEADING.match(line):
            sections.append({heading[1]: []})
        elif sections:
            pages = sections[-1][next(iter(sections[-1]))]
            pages += [{found[1][:1].upper() + found[1][1:]: found[2]} for found in LINK.finditer(line)]
    return sections
