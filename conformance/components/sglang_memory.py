"""What the comparisons of memory pools with SGLang's own code share."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from conformance.components.probes import FOLDER
from conformance.probing import Record, probe_records
from files.errors import HeadcountError
from kvcache.gpus.gpu import find_gpu
from kvcache.models.catalog import load_model, model_files
from kvcache.shape.architecture import Architecture
from simulator.engines.sglang.arguments import SGLangArgs

Differences = dict[str, tuple[Any, Any]]  # our answer and SGLang's, by case


class MemoryCase(Protocol):
    """A model under arguments, with what is left for its pools on each GPU."""

    @property
    def name(self) -> str: ...
    @property
    def model(self) -> str: ...
    def to_json(self) -> Record: ...  # what the probe reads
    def ours(self) -> Record: ...  # the same as the probe says it


def text_config(model: str) -> Record:
    """The part of a catalog model's config.json that is about text."""
    name = load_model(model).name
    found = next(
        entry["config"]
        for path in model_files()
        if (entry := json.loads(path.read_text(encoding="utf-8"))).get("name") == name
    )
    text: Record = found.get("text_config", found)
    return text


def is_simulated(arch: Architecture, gpu: str, args: SGLangArgs) -> bool:
    """Whether SGLang's pools of this model are simulated; other refusals are of the arguments."""
    try:
        args.filled(arch, find_gpu(gpu))
    except HeadcountError as error:
        return "not simulated" not in str(error)
    return True


def differences(python: Path, probe: str, cases: Sequence[MemoryCase]) -> Differences:
    """Cases that differ. Raises HeadcountError where SGLang's code could not be run."""
    lines = (case.to_json() for case in cases)
    failure = "SGLang's memory pools could not be sized"
    records = probe_records(python, probe, lines, failure=failure, folder=FOLDER)
    next(records)
    found: Differences = {}
    for case, theirs in zip(cases, records, strict=True):
        ours = {"name": case.name, **case.ours()}
        if ours != theirs:
            found[f"{case.name} ({case.model})"] = (ours, theirs)
    return found
