"""What becomes of a conversation whose next turn would not fit the model's context."""

from typing import Annotated, Final, Literal

from msgspec import Meta

from files.reading import InputError
from files.schema import Strict

GOES_ON, OPENS, BEGINS_ANEW, SUMMARY = range(4)
"""What a turn is: the next of what was said; the first of a conversation; the first after what was said was shortened;
a client's request for a summary of it."""


class AtLimit(Strict, frozen=True, kw_only=True):
    """Without it the user opens the next conversation."""

    does: Annotated[Literal["end", "truncate", "summarize"], Meta(description="end, truncate or summarize")] = "end"
    """`truncate`: the oldest is left out, and the turn is sent. `summarize`: the client first asks for a summary, which
    takes the place of all that was said."""
    kept_share: Annotated[float, Meta(ge=0, lt=1, description="a share from 0, below 1")] | None = None
    """`truncate`: of the context beside the system prompt, so much is what stays of what was said."""
    summary_tokens: (
        Annotated[int, Meta(ge=1, le=2**20, description="a whole number of tokens, 1 to 1,048,576")] | None
    ) = None
    """`summarize`: length of a summary; so many tokens are kept free for it."""
    source: str = ""

    def __post_init__(self) -> None:
        needs = {"truncate": "kept_share", "summarize": "summary_tokens"}
        for does, name in needs.items():
            if (self.does == does) != (getattr(self, name) is not None):
                what = f"needs {name}" if self.does == does else f"has {name}, which goes with does = '{does}'"
                raise InputError(f"at_limit: does = '{self.does}' {what}")

    @property
    def goes_on(self) -> bool:
        """Whether the conversation goes on beyond the limit."""
        return self.does != "end"

    def kept_tokens(self, room: int) -> int:
        """What stays of what was said, at most."""
        return int((self.kept_share or 0.0) * room)


END: Final = AtLimit()
