"""Results as JSON."""

import json
import math
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    """One object on stdout; what is not finite becomes null, since JSON has no word for it."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
