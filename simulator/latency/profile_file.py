"""A latency profile as a small file of TOML."""

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import Meta, field
from msgspec.structs import asdict

from files.documents import Json, read_toml, toml_lines, toml_value
from files.errors import HeadcountError
from files.names import shortened
from files.reading import InputError, shown
from files.schema import AtLeastOne, Count, NotNegative, Number, Strict, typed
from simulator.engines.engines import ENGINES, VLLM
from simulator.latency.model import RANGED, LogError
from simulator.latency.profile import OFFSETS, LatencyProfile, Range, Term, term_names

SCHEMA_VERSION = 1
_Sizes: Any = AtLeastOne | list[AtLeastOne]
Setting = str | bool | Count | NotNegative
LogMean = Annotated[float, Meta(ge=-5, le=5, description="a number from -5 to 5: no fit is further from 0")]
Sd = Annotated[float, Meta(ge=1e-12, le=10, description="a standard deviation above 0, at most 10")]
Variance = Annotated[float, Meta(ge=-100, le=100, description="a number from -100 to 100")]
Spread = Annotated[float, Meta(ge=0, le=3, description="a standard deviation from 0 to 3")]
Growth = Annotated[float, Meta(ge=-0.5, le=0.5, description="a power from -0.5 to 0.5")]


class _Term(Strict, frozen=True, kw_only=True):
    name: Literal[term_names()]  # type: ignore[valid-type]
    prior_mean: LogMean
    prior_sd: Sd
    mean: LogMean
    sd: NotNegative = 0.0  # for whoever reads the file: the covariance's

    def __post_init__(self) -> None:
        if self.name in OFFSETS and not abs(self.mean) <= 1:
            raise HeadcountError(f"{self.name}: mean is {self.mean:g}; it must be a number of seconds from -1 to 1")


class _Posterior(Strict, frozen=True, kw_only=True):
    covariance: list[list[Variance]]


class _LogError(Strict, frozen=True, kw_only=True):
    deployment: Spread
    residual: Spread
    half_width_sds: Sd = LogError.half_width_sds
    growth: Growth = LogError.growth


class _LogErrors(Strict, frozen=True, kw_only=True):
    tpot: _LogError
    ttft: _LogError


class _File(Strict, frozen=True, kw_only=True):
    schema_version: int
    name: str
    gpu: str
    base: str
    base_digest: str
    source: str
    terms: list[_Term] = field(default_factory=list)
    posterior: _Posterior
    log_error: _LogErrors
    ranges: dict[Literal[RANGED], tuple[NotNegative, NotNegative]] = field(default_factory=dict)  # type: ignore[valid-type]
    held_out: dict[str, Number] = field(default_factory=dict)
    settings: dict[str, Setting | list[Setting]] = field(default_factory=dict)
    data: Json = field(default_factory=dict)


def read_profile(path: Path) -> LatencyProfile:
    """Raises InputError where the file cannot be read or is no profile."""
    content = read_toml(path)
    version = content.get("schema_version")
    if version is None:
        raise InputError(
            f"{shown(path)} is not a latency profile: it has no schema_version; 'headcount calibrate fit' writes one"
        )
    if version != SCHEMA_VERSION:
        told = shortened(str(version))
        raise InputError(f"{shown(path)}: schema_version is {told}; this release reads {SCHEMA_VERSION}: fit it again")
    found = typed(content, _File, path)
    try:
        return _profile(found)
    except ValueError as error:
        raise InputError(f"{shown(path)}: {error}") from None


def _profile(file: _File) -> LatencyProfile:
    count, rows = len(file.terms), file.posterior.covariance
    if [len(row) for row in rows] != [count] * count:
        widest = max(map(len, rows), default=0)
        raise HeadcountError(
            f"posterior.covariance has {len(rows)} rows of up to {widest} numbers and there are {count} terms; "
            "it needs a row and a column for each term"
        )
    names = ("name", "prior_mean", "prior_sd", "mean")
    kept = ("name", "gpu", "base", "base_digest", "source", "held_out", "settings", "data")
    for name, value in file.settings.items():
        if name.endswith("_parallel_size"):
            typed(value, _Sizes, "", name=f"settings.{name}")
    typed(file.settings.get("engine", VLLM), Literal[tuple(ENGINES)], "", name="settings.engine")  # type: ignore[arg-type]
    return LatencyProfile(
        **{name: getattr(file, name) for name in kept},
        terms=tuple(Term(**{name: getattr(term, name) for name in names}) for term in file.terms),
        covariance=np.array(rows, dtype=np.float64).reshape(count, count),
        tpot_log_error=LogError(**asdict(file.log_error.tpot)),
        ttft_log_error=LogError(**asdict(file.log_error.ttft)),
        ranges={name: Range(low=low, high=high) for name, (low, high) in file.ranges.items()},
    )


def profile_text(profile: LatencyProfile) -> str:
    """The profile as TOML."""
    head = {"schema_version": SCHEMA_VERSION}
    head |= {name: getattr(profile, name) for name in ("name", "gpu", "base", "base_digest", "source")}
    parts = ["# Written by headcount calibrate fit; read with --latency-profile.", *toml_lines(head)]
    parts += ["", "# Natural logarithms of multipliers; *_offset_s are seconds."]
    for term, sd in zip(profile.terms, profile.sd, strict=True):
        values = {"prior_mean": term.prior_mean, "prior_sd": term.prior_sd, "mean": term.mean, "sd": float(sd)}
        parts += ["[[terms]]", *toml_lines({"name": term.name, **values})]
    parts += ["", "[posterior]", "covariance = ["]
    parts += [f"  {toml_value([float(cell) for cell in row])}," for row in profile.covariance]
    parts += ["]", "", "[log_error] # of a mean latency, standard deviations"]
    for metric in ("tpot", "ttft"):
        error: LogError = getattr(profile, f"{metric}_log_error")
        known = {name: getattr(error, name) for name in _LogError.__struct_fields__}  # no groups: of its own runs
        parts.append(f"{metric} = {{ {', '.join(f'{name} = {value!r}' for name, value in known.items())} }}")
    parts += [
        "",
        "[ranges] # of a step, as measured",
        *(f"{name} = {toml_value([covered.low, covered.high])}" for name, covered in profile.ranges.items()),
    ]
    for name in ("held_out", "settings", "data"):
        parts += ["", f"[{name}]", *toml_lines(getattr(profile, name))]
    return "\n".join(parts) + "\n"
