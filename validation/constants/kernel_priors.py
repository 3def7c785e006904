"""Constants that measured kernel times give without any fit to serving runs, from one TOML file each."""

import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvcache.gpus.gpu import GPU
from kvcache.releases import precedes
from simulator.latency.gpu_constants import GENERAL, Constants, constants_for
from simulator.latency.model import LogError

PRIORS = Path(__file__).parent / "priors"  # written by validation/constants/kernel_tables, general.toml by hand


def prior_for(gpu: GPU, *, vllm_version: str | None = None) -> Constants:
    """Constants from kernel tables of this GPU or else its family; where they are silent, general values.

    Kernels of the newest release measured, or of that before a release from which on they are others.
    Raises ValueError on a prior of an unknown constant or without a source.
    """
    shipped = constants_for(gpu)
    files = [(stem, PRIORS / f"{stem}.toml") for stem in (GENERAL, gpu.family, gpu.name)]
    found = [(stem, tomllib.loads(path.read_text(encoding="utf-8"))) for stem, path in files if path.is_file()]
    values: dict[str, Any] = {}
    sources: dict[str, tuple[str, str]] = {}
    for stem, content in found:
        entries = dict(content["priors"])
        for release, older in content.get("before", {}).items():
            if vllm_version is not None and precedes(vllm_version, release):
                entries = {name: _over(entries.get(name, {}), entry) for name, entry in {**entries, **older}.items()}
        for name, entry in entries.items():
            if name not in shipped.sources or not str(entry.get("source", "")).strip():
                raise ValueError(f"{PRIORS.name}/{stem}.toml: {name} is not a constant, or has no source")
            values[name] = _over({"value": values.get(name)}, entry)["value"]
            sources[name] = (str(values[name]), entry["source"])
    if missing := set(shipped.sources) - set(values):
        raise ValueError(f"{PRIORS.name}/general.toml: missing {', '.join(sorted(missing))}")
    errors = found[0][1]["log_error"]
    return replace(
        shipped,
        name=found[-1][0],
        is_measured=False,  # kernels are, runs are not
        covariance=GENERAL,
        tpot_log_error=LogError(**errors["tpot"]),
        ttft_log_error=LogError(**errors["ttft"]),
        log_errors_by_kind={},
        open_ttft_log_errors={},
        sources=sources,
        **values,
    )


def _over(below: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The entry, with the keys of a mapping that it leaves out as they were."""
    if isinstance(entry["value"], Mapping) and isinstance(below.get("value"), Mapping):
        return {**entry, "value": {**below["value"], **entry["value"]}}
    return dict(entry)
