"""Scripts that other interpreters run import only what the scripts beside them have."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROBES = {path.stem: path for folder in ("calibrate", "conformance") for path in (ROOT / folder).rglob("probes/*.py")}


def _names(path: Path) -> set[str]:
    """What a script defines at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {alias.asname or alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_a_script_s_neighbour_has_what_it_imports(probe: str) -> None:
    imports = [
        node for node in ast.walk(ast.parse(PROBES[probe].read_text("utf-8"))) if isinstance(node, ast.ImportFrom)
    ]
    for node in imports:
        if node.module in PROBES:
            assert {alias.name for alias in node.names} <= _names(PROBES[node.module]), node.module
