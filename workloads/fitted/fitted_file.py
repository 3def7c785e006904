"""A fitted trace as a small file of TOML."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta

from files.documents import toml_lines, toml_value
from files.reading import InputError, shown
from files.schema import AtLeastOne, Count, NotNegative, Share, Strict, typed
from workloads.distributions import Empirical, Spec, parse_distribution
from workloads.fitted import MARK
from workloads.fitted.cascade import MOST_HALVINGS, MOST_WINDOWS, Cascade
from workloads.fitted.copula import Copula
from workloads.fitted.fitted_trace import MOST_TOKENS, OF_WINDOWS, FittedTrace, RequestKind, Turns
from workloads.fitted.grid import CELLS, Grid
from workloads.fitted.marginals import FEWEST
from workloads.fitted.serial import Serial

SCHEMA_VERSION: Final = 1
MOST_REQUESTS: Final = 10_000_000
_OF_NEW: Final = ("new_tokens", "output_tokens")
_OF_SHARING: Final = ("shared_tokens", *_OF_NEW, "lag")
_OF_TURNS: Final = (*_OF_NEW, "think_s", "kept_share")
_Correlation = Annotated[float, Meta(ge=-2, le=2, description="a number from -2 to 2")]
_Tokens = Annotated[int, Meta(ge=1, le=MOST_TOKENS, description=f"a whole number from 1 to {MOST_TOKENS:,}")]
_Requests = Annotated[int, Meta(ge=1, le=MOST_REQUESTS, description=f"a whole number from 1 to {MOST_REQUESTS:,}")]


class _Head(Strict, frozen=True, kw_only=True):
    schema_version: Literal[1]
    title: str
    num_requests: _Requests
    longest_prompt: _Tokens
    longest_context: _Tokens = MOST_TOKENS
    block_size: AtLeastOne | None = None


class _Arrivals(Strict, frozen=True, kw_only=True):
    period_s: NotNegative
    tick_s: NotNegative
    windows: Annotated[list[Share], Meta(min_length=1, max_length=MOST_WINDOWS)]
    unevenness: Annotated[list[Share], Meta(max_length=MOST_HALVINGS)]


class _Serial(Strict, frozen=True, kw_only=True):
    share: Share
    decay: Annotated[float, Meta(ge=0, lt=1, description="a number from 0, below 1")]


class _Kind(Strict, frozen=True, kw_only=True):
    share: Share
    unit_tokens: AtLeastOne = 1
    answers: list[list[Count]] | None = None
    correlations: list[list[_Correlation]]
    marginals: dict[str, Spec]


class _Turns(Strict, frozen=True, kw_only=True):
    per_session: Spec
    correlations: list[list[_Correlation]]
    marginals: dict[str, Spec]


class _File(Strict, frozen=True, kw_only=True):
    fitted_trace: _Head
    arrivals: _Arrivals
    means: dict[Literal[OF_WINDOWS], list[NotNegative]]  # type: ignore[valid-type]
    serial: _Serial
    kinds: Annotated[dict[str, _Kind], Meta(min_length=1)]
    turns: _Turns | None = None


def fitted_from_mapping(data: Mapping[str, object], *, name: str, file: Path) -> FittedTrace:
    """A fitted trace from the tables of its file. Raises InputError."""
    tables = typed(data, _File, file)
    arrivals, many = tables.arrivals, len(tables.arrivals.windows)
    for key in OF_WINDOWS:
        if len(tables.means.get(key, ())) != many:
            raise InputError(f"{shown(file)}: means.{key} has not {many} numbers, one for each of arrivals.windows")
    if not sum(arrivals.windows) > 0 or not sum(kind.share for kind in tables.kinds.values()) > 0:
        raise InputError(f"{shown(file)}: all shares of arrivals.windows or of kinds are 0; one must be above 0")
    kinds = {key: _kind(kind, key, file) for key, kind in tables.kinds.items()}
    return FittedTrace(
        name=name,
        title=tables.fitted_trace.title,
        num_requests=tables.fitted_trace.num_requests,
        longest_prompt=tables.fitted_trace.longest_prompt,
        longest_context=tables.fitted_trace.longest_context,
        block_size=tables.fitted_trace.block_size,
        cascade=Cascade(
            period_s=arrivals.period_s,
            tick_s=arrivals.tick_s,
            windows=tuple(arrivals.windows),
            unevenness=tuple(arrivals.unevenness),
        ),
        means={key: tuple(values) for key, values in tables.means.items()},
        serial=Serial(share=tables.serial.share, decay=tables.serial.decay),
        kinds=kinds,
        turns=None if tables.turns is None else _read_turns(tables.turns, file),
    )


def _kind(table: _Kind, key: str, file: Path) -> RequestKind:
    names = _OF_SHARING if "lag" in table.marginals else _OF_NEW
    copula = _copula(table.marginals, table.correlations, names, file, f"kinds.{key}")
    answers = None if table.answers is None else _grid(table.answers, file, f"kinds.{key}.answers")
    return RequestKind(share=table.share, unit_tokens=table.unit_tokens, copula=copula, answers=answers)


def _grid(counts: list[list[int]], file: Path, place: str) -> Grid:
    if len(counts) != CELLS or any(len(row) != CELLS for row in counts):
        raise InputError(f"{shown(file)}: {place} is no table of {CELLS} rows of {CELLS} counts")
    if not all(map(any, counts)):
        raise InputError(f"{shown(file)}: {place} has a row of zeros; each must have a count above 0")
    return Grid(counts=tuple(map(tuple, counts)))


def _read_turns(table: _Turns, file: Path) -> Turns:
    return Turns(
        per_session=_empirical(table.per_session, file, "turns.per_session"),
        copula=_copula(table.marginals, table.correlations, _OF_TURNS, file, "turns"),
    )


def _copula(
    marginals: Mapping[str, object], correlations: list[list[float]], names: tuple[str, ...], file: Path, place: str
) -> Copula:
    if tuple(marginals) != names:
        given = ", ".join(marginals)
        raise InputError(
            f"{shown(file)}: {place}.marginals has {given}; it must have {', '.join(names)}, in this order"
        )
    n = len(names)
    symmetric = all(len(row) == n for row in correlations) and all(
        correlations[i][j] == correlations[j][i] for i in range(len(correlations)) for j in range(len(correlations))
    )
    if len(correlations) != n or not symmetric:
        raise InputError(f"{shown(file)}: {place}.correlations is no symmetric matrix of {n} rows of {n} numbers")
    return Copula(
        marginals={name: _empirical(spec, file, f"{place}.marginals.{name}") for name, spec in marginals.items()},
        correlations=tuple(map(tuple, correlations)),
    )


def _empirical(spec: object, file: Path, place: str) -> Empirical:
    found = parse_distribution(spec, file=file, name=place)
    if not isinstance(found, Empirical):
        raise InputError(f"{shown(file)}: {place} must be empirical, with values and probabilities")
    return found


def fitted_text(model: FittedTrace) -> str:
    """The model as TOML."""
    parts = [
        "# Written by headcount workload fit; read with --workload. It holds no request of the trace: each value is",
        f"# the mean of {FEWEST} requests or more, apart from counts and the recording's length.",
        f"[{MARK}]",
        *toml_lines({"schema_version": SCHEMA_VERSION, "title": model.title, "num_requests": model.num_requests}),
        *toml_lines({"longest_prompt": model.longest_prompt, "longest_context": model.longest_context}),
        *([] if model.block_size is None else toml_lines({"block_size": model.block_size})),
        "",
        "[arrivals] # of requests that follow no other",
        *toml_lines(vars(model.cascade)),
        "",
        "[means] # of the requests in each window",
        *toml_lines(model.means),
        "",
        "[serial] # correlation of new_tokens of requests k apart: share * decay ** k",
        *toml_lines(vars(model.serial)),
    ]
    for name, kind in model.kinds.items():
        parts += ["", f"[kinds.{name}]", *toml_lines({"share": kind.share, "unit_tokens": kind.unit_tokens})]
        if kind.answers is not None:
            parts += ["# requests by rank of the prompt (rows) and of the answer", *_grid_lines(kind.answers)]
        parts += _copula_lines(kind.copula, f"kinds.{name}")
    if model.turns is not None:
        parts += ["", "[turns]", f"per_session = {_inline(model.turns.per_session)}"]
        parts += _copula_lines(model.turns.copula, "turns")
    return "\n".join(parts) + "\n"


def _copula_lines(copula: Copula, place: str) -> list[str]:
    marginals = [f"{name} = {_inline(marginal)}" for name, marginal in copula.marginals.items()]
    return [*toml_lines({"correlations": copula.correlations}), f"[{place}.marginals]", *marginals]


def _grid_lines(grid: Grid) -> list[str]:
    return ["answers = [", *(f"  {toml_value(row)}," for row in grid.counts), "]"]


def _inline(marginal: Empirical) -> str:
    lines = toml_lines({"values": marginal.values, "probabilities": marginal.probabilities})
    return f'{{ kind = "empirical", {", ".join(lines)} }}'
