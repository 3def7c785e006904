"""Results as JSON."""

import json
from typing import Any

from headcount.text.units import finite


def print_json(value: dict[str, Any]) -> None:
    """One object on stdout; what is not finite becomes null, since JSON has no word for it."""
    print(json.dumps(finite(value), indent=2, allow_nan=False))
