"""A server's log as it was written, whatever a terminal, a container or a paste made of it.

White space is all that wrapping changes: what was one line is joined without any, and patterns made by `log_pattern`
match with or without the white space that they have. Colours and the prefixes of docker compose, kubectl, containerd,
journald and quoted text are taken off; a prefix that is not known stays in front of the line's own head.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from files.reading import read_text

_COLOURS = re.compile(
    r"\x1b\][^\x07\x1b]{0,300}(?:\x07|\x1b\\)|\x1b\[[0-?]{0,40}[ -/]{0,4}[@-~]|\[[0-9]{1,3}(?:;[0-9]{1,3}){0,4}m"
)
_DATE = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9:]{8}(?:[.,][0-9]{1,9})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
_PREFIX = re.compile(
    r"\s{0,40}(?:"
    r"(?:> ?){1,9}"  # quoted text
    r"|[A-Za-z0-9][\w.-]{0,80} {0,40}\| ?"  # docker compose: service-1  |
    r"|\[pod/[^\]\s]{1,300}\] ?"  # kubectl logs --prefix
    rf"|{_DATE}(?: |$)(?:std(?:out|err) [FP] )?"  # docker logs -t, kubectl logs --timestamps, containerd
    r"|(?:[A-Z][a-z]{2} [ 0-9][0-9] [0-9:]{8} )?[\w.-]{1,80} [\w./@-]{1,80}\[[0-9]{1,9}\]: ?"  # journald, any date
    r")"
)
_HEAD = re.compile(
    r"\s{0,40}(?:\([^()]{0,60}pid=[0-9]{1,9}[^()]{0,60}\)"  # a process of vLLM or Ray
    r"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)\b|\[[0-9]{4}-[0-9]{2}-[0-9]{2}(?: |$)|\[[0-9:]{8}(?: |$))"
)
_ANY_HEAD = re.compile(
    r"\b(?:DEBUG|INFO|WARNING|ERROR) [0-9]{2}-[0-9]{2} [0-9:]{8} |\[[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9:]{8}"
)
_MOST_PREFIXES = 4
EVERY_LINE = 0.9  # at least such a share of lines has a prefix where each has one, but for what was pasted around them


def log_pattern(pattern: str) -> re.Pattern[str]:
    """The pattern, each of whose spaces is any white space or none; it must have none within [ ]."""
    return re.compile(pattern.replace(" ", r"\s*"))


def log_text(path: Path) -> str:
    """A log with one line for each that the server wrote. Raises InputError where the file cannot be read."""
    return unwrapped(read_text(path, "result_bytes", damaged="replace"))


def unwrapped(text: str) -> str:
    """The same log, its wrapped lines joined, without colours and known prefixes; every line keeps its number."""
    return "\n".join("".join(parts) + "\n" * (len(parts) - 1) for parts in _records(text))


def plain_text(text: str) -> str:
    """The text, line by line, without colours and known prefixes."""
    return "\n".join(map(_without_prefix, _COLOURS.sub("", text).splitlines()))


def _records(text: str) -> Iterator[list[str]]:
    lines = _COLOURS.sub("", text).replace("\r\n", "\n").replace("\r", " ").split("\n")
    plain = [_without_prefix(line) for line in lines]
    prefixed = [len(rest) < len(line) for rest, line in zip(plain, lines, strict=True)]
    are_heads = sum(prefixed) < EVERY_LINE * len(lines)  # a terminal wrapped them: what it went on with has no prefix
    record: list[str] = []
    for line, is_prefixed in zip(plain, prefixed, strict=True):
        is_head = _HEAD.match(line) or _ANY_HEAD.search(line) or (are_heads and is_prefixed)
        if record and is_head:
            yield record
            record = []
        record.append(line.strip())
    yield record


def _without_prefix(line: str) -> str:
    for _ in range(_MOST_PREFIXES):
        found = _PREFIX.match(line)
        if found is None:
            break
        line = line[found.end() :]
    return line
