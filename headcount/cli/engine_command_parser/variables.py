"""The variables that a pasted text sets for its own use, put where it uses them."""

import re
from collections.abc import Mapping

_VALUE = r"""(?:"(?:[^"$\n]|\$\{[^{}\n]*\}|\$[A-Z_]\w*)*"|'[^'\n]*'|(?:[^\s"'$;&|]|\$\{[^{}\n]*\}|\$[A-Z_]\w*)+)"""
_ASSIGNMENT = re.compile(  # a command of its own: what stands before another is the server's environment
    rf"(?:^|(?<=[;&]))[ \t]*(?:export[ \t]+)?([A-Z_][A-Z0-9_]*)=({_VALUE})[ \t]*(?=(?:\#.*)?$|;|&&)", re.MULTILINE
)
_ARRAY = re.compile(r"^[ \t]*(?:declare[ \t]+-a[ \t]+)?(\w+)=\(([^()]*)\)[ \t]*$", re.MULTILINE)
_ALL_OF_ARRAY = re.compile(r"\"?\$\{(\w+)\[[@*]\]\}\"?")
_USE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}$\n]*))?\}|([A-Z_][A-Z0-9_]*))")


def expanded(text: str) -> str:
    """A shell's text with the variables that it sets, or with the default that `${NAME:-default}` has.

    What is set for the text's own use is not the server's environment, and goes.
    """
    arrays = {name: " ".join(words.split()) for name, words in _ARRAY.findall(text)}
    text = _ALL_OF_ARRAY.sub(lambda found: arrays.get(found[1], found[0]), _ARRAY.sub("", text) if arrays else text)
    values: dict[str, str] = {}
    for name, value in _ASSIGNMENT.findall(text):
        values[name] = with_values(value.strip("\"'"), values)
    used = names_used(text)
    text = _ASSIGNMENT.sub(lambda found: "" if found[1] in used else found[0], text)
    return with_values(text, values)


def names_used(text: str) -> set[str]:
    """The variables that a text uses, as a shell writes it."""
    return {found[1] or found[3] for found in _USE.finditer(text)}


def with_values(text: str, values: Mapping[str, str]) -> str:
    """A text with the variables that have a value, or a default where they stand."""

    def value(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        return values.get(name, found[0] if default is None else default)

    return _USE.sub(value, text)
