"""`headcount models`: what is known by name, and what of a folder of configs is not answered."""

from pathlib import Path

import click

from files.documents import Json
from headcount.cli.command import Command
from headcount.cli.option_types import json_option, option
from headcount.cli.output import listing
from kvcache.models.catalog import load_model, model_names, model_source
from kvcache.models.missing import missing_models
from kvcache.shape.parameters import active_parameters, total_parameters
from simulator.engines.values import FilePath


@click.command("models", cls=Command)
@option("--missing", FilePath(), "Folder with a folder for each model: lists the configs that are refused or assumed.")
@json_option
def command(as_json: bool, missing: Path | None) -> int:
    """List the models known by name. Any other model is read from its config.json."""
    return _known(as_json=as_json) if missing is None else _missing(missing, as_json=as_json)


def _known(*, as_json: bool) -> int:
    found: list[Json] = []
    for name in model_names():
        architecture = load_model(name)
        found.append(
            {
                "name": name,
                "parameters": total_parameters(architecture),
                "active_parameters": active_parameters(architecture),
                "max_model_len": architecture.max_position_embeddings,
                "source": model_source(name),
            }
        )
    rows = [
        (
            each["name"],
            f"{each['parameters'] / 1e9:.1f} B",
            f"{each['active_parameters'] / 1e9:.1f} B",
            f"{each['max_model_len']:,}",
        )
        for each in found
    ]
    return listing("models", found, ("model", "parameters", "active", "max_model_len"), rows, as_json=as_json)


def _missing(folder: Path, *, as_json: bool) -> int:
    models = missing_models(folder)
    found: list[Json] = [vars(model) for model in models]
    rows = [(model.name, "refused" if model.is_refused else "assumed", model.why) for model in models]
    return listing("missing", found, ("model", "answer", "why"), rows, as_json=as_json)
