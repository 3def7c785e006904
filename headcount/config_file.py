"""Options read from a file."""

import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from headcount.errors import nearest


def read_config(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Option values by parameter name; the file may write names with - or _. Unknown names are refused."""
    if not path.is_file():
        raise ValueError(f"--config {path}: no such file")
    values = _parse(path)
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: it must hold option names with values, such as 'max-model-len: 8192'")
    renamed = {"json": "as_json", "slo": "slo_name", "tp": "tensor_parallel_size"}
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).lstrip("-").replace("-", "_")
        name = renamed.get(name, name)
        if name not in names:
            raise ValueError(f"--config {path}: no option '{key}'{nearest(name, list(names))}")
        found[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    return found


def _parse(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    try:
        return tomllib.loads(text) if path.suffix == ".toml" else yaml.safe_load(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
        raise ValueError(f"--config {path}: {error}") from None
