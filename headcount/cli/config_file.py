"""Options read from a file."""

import tomllib
from pathlib import Path
from typing import Any

import click
import yaml

from boundary.names import nearest_hint, shortened
from headcount.cli.option_names import Spelling, converted, spellings


def read_config(path: Path, ctx: click.Context) -> dict[str, Any]:
    """Option values by parameter name; the file may write names with - or _.

    Raises ValueError for a name that the command does not have, or for a value that the option would refuse.
    """
    if path.is_dir():
        raise ValueError(f"--config {path}: is a folder; give a YAML file, or a TOML file that ends in .toml")
    if not path.is_file():
        raise ValueError(f"--config {path}: no such file; give a YAML file, or a TOML file that ends in .toml")
    values = _parse(path)
    if not isinstance(values, dict):
        raise ValueError(f"--config {path}: it must hold option names with values, such as 'max-model-len: 8192'")
    names = spellings(ctx.command.params)
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = str(key).lstrip("-").replace("_", "-")
        if name not in names:
            raise ValueError(f"--config {path}: no option '{shortened(str(key))}'; {nearest_hint(name, list(names))}")
        if names[name].key in found:
            raise ValueError(f"--config {path}: '{shortened(str(key))}' is given twice; leave out one of them")
        try:
            found[names[name].key] = _value(ctx, names[name], value)
        except ValueError as error:
            raise ValueError(f"--config {path}: {name}: {error}") from None
    return found


def _value(ctx: click.Context, spelling: Spelling, value: Any) -> Any:
    if spelling.option.is_flag:
        if not isinstance(value, bool):
            raise ValueError(f"'{shortened(str(value))}' is neither true nor false")
        return value != spelling.turns_off
    if value is None:
        raise ValueError("it has no value; give one, or leave it out")
    if isinstance(value, list) and value:
        value = ",".join(map(str, value))
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"'{shortened(str(value))}' is not a value for it; give text (in quotes) or a number")
    return converted(ctx, spelling, str(value))


def _refuse_twice(node: yaml.Node | None) -> None:
    """Raise ValueError where YAML would take the last of two values of one name, as TOML does."""
    names = [str(key.value) for key, _ in node.value] if isinstance(node, yaml.MappingNode) else []
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise ValueError(f"'{shortened(twice)}' is given twice; leave out one of them")


def _parse(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".toml":
            return tomllib.loads(text)
        _refuse_twice(yaml.compose(text, yaml.SafeLoader))
        return yaml.safe_load(text)
    except UnicodeDecodeError:
        raise ValueError(f"--config {path}: not a text file in UTF-8") from None
    except yaml.MarkedYAMLError as error:
        place = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ValueError(f"--config {path}{place}: not readable as YAML: {error.problem}") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, ValueError) as error:
        raise ValueError(f"--config {path}: not readable: {error}") from None
    except RecursionError:
        raise ValueError(f"--config {path}: nested too deeply; give option names with plain values") from None
