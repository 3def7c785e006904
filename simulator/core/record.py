"""A record of the compiled core's arrays."""

import numpy as np


def record(fields: list[tuple[object, ...]]) -> np.dtype[np.void]:
    """Aligned like a C struct; as `np.record`, so that the core also runs without the compiler."""
    return np.dtype((np.record, np.dtype(fields, align=True)))
