"""The errors that a model or a split of wrong size raises."""

from files.errors import HeadcountError


class DoesNotFitError(HeadcountError):
    """A model that leaves no room for the KV cache it needs."""


class SplitError(HeadcountError):
    """A split over ranks that vLLM refuses."""
