"""Which known name somebody meant, and how a mistake is put into one line."""

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from files.errors import HeadcountError

_VERY_NEAR = 0.8  # difflib's ratio of a name with one or two slips


class UnknownNameError(HeadcountError):
    """A name that nothing known carries."""


def check_names(given: Iterable[str], known: Collection[str], what: str) -> None:
    """Raise UnknownNameError for the first that is not known, with the nearest that is."""
    unknown = next((name for name in given if name not in known), None)
    if unknown is not None:
        raise UnknownNameError(f"no {what} '{shortened(one_line(unknown))}'; {nearest_hint(unknown, known)}")


def nearest_hint(given: str, known: Iterable[str]) -> str:
    """`did you mean 'chat'?`, or the known names where none is near."""
    names = sorted(known)
    lowered = {name.lower(): name for name in names}
    # A name that goes on where the given one stops is nearer than any other.
    near = [name for name in names if given and name.lower().startswith(given.lower())]
    near += [lowered[key] for key in _close(given.lower(), lowered)]
    spelled: dict[str, str] = {}  # `llama3.1-8b` and `llama-3.1-8b` are one thing
    for name in near:
        spelled.setdefault(name.lower().replace("-", ""), name)
    near = list(spelled.values())[:3]
    if near:
        return f"did you mean {' or '.join(repr(name) for name in near)}?"
    return f"known: {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"


def near_hint(given: str, known: Iterable[str]) -> str:
    """`did you mean 'chat'?`; nothing where no name is very near."""
    near = get_close_matches(given.lower(), sorted(known), n=3, cutoff=_VERY_NEAR)
    return f"did you mean {' or '.join(map(repr, near))}?" if near else ""


def _close(given: str, known: Iterable[str]) -> list[str]:
    """The three nearest, without the far ones where some are very near."""
    names = list(known)
    return get_close_matches(given, names, n=3, cutoff=_VERY_NEAR) or get_close_matches(given, names, n=3, cutoff=0.5)


def shortened(text: str, length: int = 60) -> str:
    """What was given or found, cut where it would fill the screen."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def readable(number: float) -> str:
    """A number in a message, such as `1,000,000`, `88.4` or `0.0012`: never with an exponent from 1,000 on."""
    return f"{number:,.0f}" if abs(number) >= 1000 else f"{number:.4g}"


def printable(text: str) -> str:
    """Text from elsewhere without control characters and line breaks, which a terminal would obey."""
    return text if text.isprintable() else "".join(char if char.isprintable() else "?" for char in text)


def one_line(text: str) -> str:
    """A message on one line of a terminal, of bounded length."""
    return shortened(printable(" ".join(text.split())), 1000)


def value_shown(value: object) -> str:
    """A value from Python in a message: as it is written, or its kind where that would be an address in memory."""
    try:
        text = one_line(repr(value))
    except Exception:  # whatever a class of the user's raises
        text = "<"
    if not text.startswith("<"):
        return shortened(text)
    if name := getattr(value, "__name__", ""):
        return f"{'class' if isinstance(value, type) else 'function'} {shortened(str(name))}"
    return f"a value of type {shortened(type(value).__name__)}"


def error_shown(error: BaseException) -> str:
    """An error in a message: its kind, and what it says if it can."""
    try:
        text = one_line(str(error))
    except Exception:  # whatever a class of the user's raises
        text = ""
    return f"{type(error).__name__}{': ' * bool(text)}{text}"
