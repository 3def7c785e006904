"""The errors that a model or a split of wrong size raises."""


class DoesNotFitError(ValueError):
    """A model that leaves no room for the KV cache it needs."""


class SplitError(ValueError):
    """A split over ranks that vLLM refuses."""
