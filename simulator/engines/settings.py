"""What an engine was given."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Settings: TypeAlias = Mapping[str, Any]
"""An engine's arguments by their names, with its model and GPU, or the environment of its process.

Each has the type of its field in the engine's arguments, or is what their kind reads.
"""
