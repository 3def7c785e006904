"""The errors that a wrong model, GPU or size raises."""

import re
from collections.abc import Iterable
from difflib import get_close_matches

_SLUG = re.compile(r"^[a-z0-9][a-z0-9._-]{0,79}$", re.ASCII)


class UnknownNameError(ValueError):
    """A name that no catalog file carries."""


class DoesNotFitError(ValueError):
    """A model that leaves no room for the KV cache it needs."""


class SplitError(ValueError):
    """A split over ranks that vLLM refuses."""


def unknown_name(kind: str, given: str, known: Iterable[str], folder: str, suffix: str) -> UnknownNameError:
    """The error that names what was given, the nearest known names, or how to add one."""
    names = sorted(known)
    lowered = {name.lower(): name for name in names}
    # A name that goes on where the given one stops is nearer than any other.
    near = [name for name in names if given and name.lower().startswith(given.lower())]
    near += [lowered[key] for key in get_close_matches(given.lower(), lowered, n=3, cutoff=0.5)]
    near = list(dict.fromkeys(near))[:3]
    listed = ", ".join(names[:6]) + (" …" if len(names) > 6 else ".")
    hint = f"did you mean {' or '.join(repr(name) for name in near)}?" if near else f"known: {listed}"
    slug = given.strip("/").replace("/", "--").lower()
    adding = f" To add one, write {folder}/{slug}{suffix}" if _SLUG.match(slug) else ""
    return UnknownNameError(f"no {kind} {given[:80]!r}; {hint}{adding}")
