"""The YAML that an engine's own `--config` reads, as its command line."""

import json
import re
import shlex
from collections.abc import Collection, Iterator

from files.documents import Json, parse_yaml
from simulator.engines.flags import find_group

_KEY = re.compile(r"^[A-Za-z][\w-]*[ \t]*:(?:[ \t]|$)", re.MULTILINE)
_OF_CONTAINERS = {"command", "args", "extraArgs", "image"}
_MODEL = {"model", "model-tag", "model-path"}


def as_command_line(text: str, engine: str, options: Collection[str]) -> str:
    """The text, or its keys as flags where it is such a YAML: at least half of its keys are flags of the engine."""
    if not _KEY.match(text.lstrip()) and not text.lstrip().startswith(("#", "---")):
        return text
    try:
        document = parse_yaml(text, "the text")
    except ValueError:
        return text
    if not isinstance(document, dict) or not document.keys().isdisjoint(_OF_CONTAINERS):
        return text
    names = [str(key).replace("_", "-") for key in document]
    known = [name for name in names if name in _MODEL or name in options or find_group(engine, name) is not None]
    return shlex.join(_words(document)) if known and 2 * len(known) >= len(names) else text


def _words(values: Json) -> Iterator[str]:
    """As vLLM's parser reads them (utils/argparse_utils.py): what is false is left out."""
    for key, value in values.items():
        if value is False or value is None or value == []:
            continue
        name = str(key).replace("_", "-")
        yield f"--{'model' if name == 'model-tag' else name}"
        if isinstance(value, list):
            yield from map(_text, value)
        elif value is not True:
            yield _text(value)


def _text(value: object) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
