"""Results as JSON, written and read."""

import json
import math
from pathlib import Path
from typing import Any


def print_json(value: dict[str, Any]) -> None:
    """One object on stdout; what is not finite becomes null, since JSON has no word for it."""
    print(json.dumps(_finite(value), indent=2, allow_nan=False))


def read_json_object(path: Path) -> dict[str, Any]:
    """Raises ValueError where the file is not there or is no JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {(error.strerror or 'no reason given').lower()}") from None
    except ValueError:
        raise ValueError(f"{path} is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} holds no JSON object")
    return value


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
