"""The site's menu and llms.txt, the headings and links of README.md in order; links to files that it lacks are text."""

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


def on_post_build(*, config: Any) -> None:
    """Called once, when the site is written: llms.txt and the pages as they are written, for programs that read."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    for page in docs.rglob("*.md"):
        copied = site / page.relative_to(docs)
        copied.parent.mkdir(parents=True, exist_ok=True)
        copied.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    (site / "llms.txt").write_text(llms_text(docs / "README.md", config), encoding="utf-8")


def llms_text(index: Path, config: Any) -> str:
    """The index as https://llmstxt.org has it: a heading, a summary, lists of links that say what is behind them."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for line in index.read_text(encoding="utf-8").splitlines():
        about = line[2:].partition(" | ")[0] if line.startswith("| ") else line.rpartition("): ")[2]
        if heading := HEADING.match(line):
            lines += ["", f"## {heading[1]}", ""]
        lines += [f"- [{found[1]}]({found[2]}): {about}" for found in LINK.finditer(line)]
    return "\n".join(lines) + "\n"
