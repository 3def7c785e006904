"""Images in prompts: how many of which size, and where a table's requests have them."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
from msgspec import Meta

from files.reading import InputError
from files.schema import Strict
from workloads.requests import OPEN_END, Int32Array, IntArray, RequestTable

MOST_IMAGES = 100  # of one message, or of one conversation
Side = Annotated[int, Meta(ge=1, le=65_536, description="a whole number of pixels, 1 to 65,536")]
Count = Annotated[int, Meta(ge=0, le=MOST_IMAGES, description=f"a whole number, 0 to {MOST_IMAGES}")]


class ImageShape(Protocol):
    """What a model's processor makes of an image: `kvcache.shape.images.ImageTokens`."""

    @property
    def tokens(self) -> int: ...
    @property
    def before(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def embeddings(self) -> int: ...
    @property
    def patches(self) -> int: ...
    @property
    def attended(self) -> int: ...


class ImagesTable(Strict, frozen=True, kw_only=True):
    """`[images]` of a population's file."""

    width: Side
    height: Side
    per_request: Count = 0
    per_conversation: Count = 0
    source: str = ""


@dataclass(frozen=True, kw_only=True)
class ImageUse:
    """Images at the beginning of each message, and of each conversation's first one; each is seen once alone.

    `shape` is what the model makes of them; None until it is known, and they have no tokens.
    """

    width: int
    height: int
    per_request: int = 0
    per_conversation: int = 0
    shape: ImageShape | None = None

    def __post_init__(self) -> None:
        for name in ("per_request", "per_conversation"):
            if not 0 <= getattr(self, name) <= MOST_IMAGES:
                raise InputError(f"images: {name} is {getattr(self, name):,}; give 0 to {MOST_IMAGES}")

    def __str__(self) -> str:
        """Such as `1 image of 1280x960 per request`."""
        counts = [
            f"{count} per {what}"
            for what, count in (("request", self.per_request), ("conversation", self.per_conversation))
            if count
        ]
        return f"images of {self.width}x{self.height}, {' and '.join(counts)}"

    @property
    def message_tokens(self) -> int:
        """Of the images of each message."""
        return 0 if self.shape is None else self.per_request * self.shape.tokens

    @property
    def opening_tokens(self) -> int:
        """Of those that each conversation begins with."""
        return 0 if self.shape is None else self.per_conversation * self.shape.tokens


class RequestImages(NamedTuple):
    """The images of a table's n requests, of m in all; several requests may have the same ones, as turns do.

    Those of a request are in the order of their tokens, which do not overlap.
    """

    shapes: tuple[ImageShape, ...]
    start: IntArray
    """[n] where a request's images begin in the columns below."""
    num: Int32Array
    """[n] how many a request has."""
    content: IntArray
    """[m] what is seen: equal ids are the same image, which vLLM's encoder cache knows by its hash."""
    offset: Int32Array
    """[m] token position of the placeholder, after the marks before it."""
    shape: Int32Array
    """[m] which of `shapes`."""

    def rows(self, rows: Any) -> "RequestImages":
        """Of these rows alone."""
        return self._replace(start=self.start[rows], num=self.num[rows])

    @property
    def most(self) -> int:
        """Of one request."""
        return int(self.num.max(initial=0))


def with_images(table: RequestTable, use: ImageUse, at: int) -> RequestTable:
    """Requests of one turn each, with the images before the text that follows their first `at` tokens.

    Requests with the same text have the same images.
    """
    shape, each = use.shape, use.per_request + use.per_conversation
    assert shape is not None, "images are those of a model"
    if int(table.prompt_tokens.max(initial=0)) + each * shape.tokens >= OPEN_END:
        raise InputError(f"prompts with {each} {use} are too long; give fewer or smaller images")
    own = table.span_content[table.span_start + table.span_count - 1]
    which = np.unique(own, return_inverse=True)[1].astype(np.int64)
    distinct = int(which.max(initial=-1)) + 1
    offset = np.tile(at + shape.before + shape.tokens * np.arange(each), distinct)
    images = RequestImages(
        shapes=(shape,),
        start=which * each,
        num=np.full(table.num_requests, each, np.int32),
        content=np.arange(distinct * each, dtype=np.int64),
        offset=offset.astype(np.int32),
        shape=np.zeros(distinct * each, np.int32),
    )
    prompts = (table.prompt_tokens + each * shape.tokens).astype(np.int32)
    return replace(table, prompt_tokens=prompts, images=images)
