"""The files of manifests, and whether a folder can take them."""

import re
from pathlib import Path
from typing import Final

from files.errors import HeadcountError
from files.names import shortened

WRITTEN: Final = "# Written by headcount plan"  # how every file begins
KUBERNETES: Final = "kubernetes.yaml"
COMPOSE, COMPOSE_NODE = "docker-compose.yaml", "docker-compose.node-{}.yaml"
COMPOSE_ROUTER: Final = "docker-compose.router.yaml"
HAPROXY: Final = "haproxy.cfg"
VALUES: Final = "production-stack.values.yaml"
KSERVE: Final = "kserve.yaml"
KEDA: Final = "keda.yaml"
LLM_D: Final = "llm-d.yaml"
LLM_D_VALUES: Final = "llm-d-router.values.yaml"
DYNAMO: Final = "dynamo.yaml"
ALERTS: Final = "alerts.yaml"
DASHBOARD: Final = "dashboard.json"
_NAMES: Final = (
    KUBERNETES, COMPOSE, COMPOSE_ROUTER, HAPROXY, VALUES, KSERVE, KEDA, LLM_D, LLM_D_VALUES, DYNAMO, ALERTS, DASHBOARD,
)  # fmt: skip
MOST_BEFORE: Final = 40  # bytes before that sentence in JSON, which has no comments
_NODE: Final = re.compile(re.escape(COMPOSE_NODE).replace(r"\{\}", r"\d+"))


def check_folder(option: str, folder: Path) -> None:
    """Refuse, before the work, a folder that cannot be written to, or whose files of the same names are others'.

    Files of other names stay as they are. Raises HeadcountError.
    """
    given = f"{option} {shortened(str(folder), 200)}"
    if not folder.exists():
        if not folder.resolve().parent.is_dir():
            raise HeadcountError(f"{given}: there is no folder {folder.resolve().parent}; create it or name another")
        return
    if not folder.is_dir():
        raise HeadcountError(f"{given} is a file; name a folder, which is created if need be")
    for path in sorted(folder.iterdir()):
        if (path.name in _NAMES or _NODE.fullmatch(path.name)) and not _is_ours(path):
            raise HeadcountError(f"{given} holds a {path.name} that headcount did not write; name another folder")


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            begin = file.read(MOST_BEFORE + len(WRITTEN)).decode("utf-8", errors="replace")
            return begin.startswith(WRITTEN) or (begin.startswith("{") and WRITTEN.removeprefix("# ") in begin)
    except OSError:
        return False
