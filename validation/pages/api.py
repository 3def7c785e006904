"""The tables of docs/reference/python.md, diagnostics.md, routers.md and autoscalers.md, from the code."""

from collections.abc import Callable
from inspect import getdoc, isfunction

from msgspec import Struct, structs

import headcount
from files.names import readable
from headcount.diagnostics.shipped import SHIPPED
from simulator.fleet.flow_control import DETECTORS
from simulator.fleet.router import ALSO_CALLED, ROUTERS, Parameter
from simulator.fleet.scaler import SCALERS
from simulator.fleet.startup import STORAGES
from simulator.fleet.view import View
from validation.markdown import table

Tables = dict[str, Callable[[], str]]


def python_tables() -> Tables:
    """By the names of the page's markers."""
    return {"names": _names}


def diagnostic_tables() -> Tables:
    """By the names of the page's markers."""
    return {"diagnostics": _diagnostics}


def router_tables() -> Tables:
    """By the names of the page's markers."""
    return {
        "routers": _routers,
        "parameters": _parameters,
        "names": _other_names,
        "view": _view,
        "flow-control": _flow_control,
    }


def scaler_tables() -> Tables:
    """By the names of the page's markers."""
    return {"autoscalers": _scalers, "storages": _storages}


def _names() -> str:
    rows = []
    for name in dir(headcount):
        found = getattr(headcount, name)
        rows.append((f"`{name}{'()' if isfunction(found) else ''}`", _first_line(getdoc(found))))
    return table(("name", "what"), rows)


def _diagnostics() -> str:
    rows = []
    for code, each in sorted(SHIPPED.items()):
        what = _first_line(each.find.__doc__)
        rows.append((f"`{code.replace('_', '-')}`", str(each.SEVERITY), what, each.REMEDY))
    return table(("code", "severity", "when", "refused by `--strict`; what to do"), rows)


def _routers() -> str:
    rows = []
    for name in ROUTERS.names():
        router = ROUTERS.load(name)
        rows.append((f"`{name.replace('_', '-')}`", _first_line(router.__doc__), ", ".join(router.SEES)))
    return table(("router", "what", "what it sees"), rows)


def _scalers() -> str:
    rows = []
    for name in SCALERS.names():
        module = SCALERS.load(name)
        fields = structs.fields(module.Settings) if issubclass(module.Settings, Struct) else ()
        given = ", ".join(f"`{item.name.removesuffix('_s')}={_shown(item.name, item.default)}`" for item in fields)
        rows.append((f"`{name.replace('_', '-')}`", _first_line(module.__doc__), given))
    return table(("autoscaler", "what", "parameters and their defaults"), rows)


def _shown(name: str, value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{text}s" if name.endswith("_s") and value is not None else text


def _storages() -> str:
    rows = [
        (f"`{name}`", f"{each.bytes_per_s / 1e9:g} GB/s {'in all' if each.is_shared else 'for each GPU'}", each.source)
        for name, each in STORAGES.items()
    ]
    return table(("`weights-from=`", "rate", "source"), rows)


def _parameters() -> str:
    rows = [
        (f"`{name.replace('_', '-')}`", f"`{key}`", readable(parameter.default), parameter.allowed, parameter.what)
        for name in ROUTERS.names()
        for key, parameter in getattr(ROUTERS.load(name), "PARAMETERS", {}).items()
    ]
    return table(("router", "parameter", "default", "allowed", "what"), rows)


def _flow_control() -> str:
    rows = [
        (f"`{name}`", f"`{key}`", _default(parameter), parameter.allowed, parameter.what)
        for name, parameters in DETECTORS.items()
        for key, parameter in parameters.items()
    ]
    return table(("detector", "parameter", "default", "allowed", "what"), rows)


def _default(parameter: Parameter) -> str:
    return parameter.choices[int(parameter.default)] if parameter.choices else readable(parameter.default)


def _other_names() -> str:
    return table(("name", "is"), [(f"`{name}`", f"`{other}`") for name, other in ALSO_CALLED.items()])


def _view() -> str:
    found = {name: value for name, value in vars(View).items() if isinstance(value, property) and name[0] != "_"}
    return table(("`view.…`", "what"), [(f"`{name}`", _first_line(value.__doc__)) for name, value in found.items()])


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0].rstrip(".")
