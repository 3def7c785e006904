"""Simulated runs with their derivatives by the constants, kept in a file: they take long, and fits use them often.

The file holds nothing that was measured. Where the simulator changes so much that the derivatives do, make them anew:
`python -m validation.constants.step_times --derive`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simulator.latency.covariance import Term
from simulator.latency.gpu_constants import FOLDER
from simulator.latency.step_time import FloatArray
from validation.constants.cases import Case, Linearized, linearize
from validation.measured.settings import Setting

FILE = Path(__file__).with_name("derivatives.npz")
Texts = Mapping[str, str]  # constants files by name, as they were when the runs were simulated


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Of one family: logarithms of simulated TTFT, TPOT [runs, 2], their slopes [runs, 2, terms]."""

    keys: NDArray[np.str_]
    terms: Sequence[Term]
    simulated: FloatArray
    slopes: FloatArray

    def of(self, cases: Sequence[Case]) -> Linearized:
        """Beside what was measured. Raises ValueError for a run that was not simulated."""
        places = {key: place for place, key in enumerate(self.keys.tolist())}
        if missing := [key_of(case) for case in cases if key_of(case) not in places]:
            raise ValueError(f"{FILE.name} has no derivatives of {missing[0]}; make them anew with --derive")
        chosen = np.array([places[key_of(case)] for case in cases])
        measured = np.array([case.measured for case in cases])
        return Linearized(cases, self.terms, measured - self.simulated[chosen], self.slopes[chosen])

    def without(self, part: str) -> "Derivatives":
        """Those of runs in whose key the part is not."""
        others = np.array([part not in key for key in self.keys.tolist()])
        return Derivatives(self.keys[others], self.terms, self.simulated[others], self.slopes[others])


def key_of(case: Case) -> str:
    """What a run is found by again."""
    if isinstance(case.run, Setting):
        run = case.run
        return " ".join(map(str, (*run.group, run.isl, run.osl, run.concurrency)))
    return f"{case.model} {case.num_gpus} {case.run.source}".replace("\\", "/")


def derive(
    cases: Sequence[Case], terms: Sequence[Term], workers: int, watch: Callable[[int, int], None]
) -> Derivatives:
    """By simulating every run once per term."""
    found = linearize(cases, terms, workers, watch)
    simulated = np.array([case.measured for case in cases]) - found.errors
    return Derivatives(np.array([key_of(case) for case in cases]), terms, simulated, found.jacobian)


def rederive(
    kept: Derivatives,
    cases: Sequence[Case],
    terms: Sequence[Term],
    changed: Sequence[str],
    derived: Callable[[Sequence[Case], Sequence[Term]], Derivatives],
) -> Derivatives:
    """Simulated anew, with slopes by terms whose names begin as `changed` ones do, by terms and of runs that are new.

    Other slopes are kept. `derived`: simulates runs once per term.
    """
    known = set(kept.keys.tolist())
    again = [case for case in cases if key_of(case) in known]
    fresh = [case for case in cases if key_of(case) not in known]
    new = derived(again, [term for term in terms if term not in kept.terms or term[0].startswith(tuple(changed))])
    old = kept.of(again)
    slopes = {term: old.jacobian[:, :, place] for place, term in enumerate(kept.terms)}
    slopes |= {term: new.slopes[:, :, place] for place, term in enumerate(new.terms)}
    whole = Derivatives(new.keys, terms, new.simulated, np.stack([slopes[term] for term in terms], axis=2))
    if not fresh:
        return whole
    added = derived(fresh, terms)
    return Derivatives(
        np.concatenate([whole.keys, added.keys]),
        terms,
        np.concatenate([whole.simulated, added.simulated]),
        np.concatenate([whole.slopes, added.slopes]),
    )


def constants_texts() -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.toml"))}


def save(families: Mapping[str, Derivatives], texts: Texts, path: Path = FILE) -> None:
    arrays = {}
    for name, each in families.items():
        arrays[f"{name}.keys"] = each.keys
        arrays[f"{name}.terms"] = np.array(json.dumps(list(each.terms)))
        arrays[f"{name}.simulated"] = each.simulated.astype(np.float32)
        arrays[f"{name}.slopes"] = each.slopes.astype(np.float16)
    np.savez_compressed(path, texts=np.array(json.dumps(dict(texts))), **arrays)


def load(path: Path = FILE) -> tuple[dict[str, Derivatives], Texts]:
    """Every family's, with the constants files about which they are."""
    with np.load(path) as arrays:
        names = [name.removesuffix(".keys") for name in arrays.files if name.endswith(".keys")]
        found = {
            name: Derivatives(
                arrays[f"{name}.keys"],
                [(term, key) for term, key in json.loads(str(arrays[f"{name}.terms"]))],
                arrays[f"{name}.simulated"].astype(np.float64),
                arrays[f"{name}.slopes"].astype(np.float64),
            )
            for name in names
        }
        return found, json.loads(str(arrays["texts"]))
