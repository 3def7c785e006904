"""`headcount models`: what is known by name."""

import click

from files.documents import Json
from headcount.cli.command import Command
from headcount.cli.option_types import json_option
from headcount.cli.output import listing
from kvcache.models.catalog import load_model, model_names, model_source
from kvcache.shape.parameters import active_parameters, total_parameters


@click.command("models", cls=Command)
@json_option
def command(as_json: bool) -> int:
    """List the models known by name. Any other model is read from its config.json."""
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
