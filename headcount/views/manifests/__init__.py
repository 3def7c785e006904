"""A plan as files that deploy its cheapest fleet, and alerts with its figures."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from files.errors import HeadcountError
from files.names import check_names, shortened
from files.outputs import write_whole
from headcount.queries.plan import PlanResult
from headcount.views.manifests import alerts, docker_compose, haproxy, kserve, kubernetes, production_stack
from headcount.views.manifests.fleet import WRITTEN, DeployedFleet, deployed_fleet

FORMATS: Final[Mapping[str, Callable[[DeployedFleet], dict[str, str]]]] = {
    "kubernetes": kubernetes.files,
    "docker-compose": docker_compose.files,
    "production-stack": production_stack.files,
    "kserve": kserve.files,
}
DEFAULT: Final = "kubernetes"
ALERTS: Final = "alerts.yaml"
_NAMES: Final = (kubernetes.FILE, production_stack.FILE, kserve.FILE, haproxy.CONFIG, ALERTS)
_COMPOSE: Final = re.compile(r"docker-compose(\.node-\d+|\.router)?\.yaml")


def manifests(answer: PlanResult, formats: Sequence[str]) -> dict[str, str]:
    """Texts by file name. Raises HeadcountError for an unknown format, or for a fleet that one cannot say."""
    check_formats(formats)
    fleet = deployed_fleet(answer)
    found = dict[str, str]()
    for name in formats or (DEFAULT,):
        found |= FORMATS[name](fleet)
    return found | {ALERTS: alerts.alerts(fleet)}


def check_formats(formats: Sequence[str]) -> None:
    """Raises UnknownNameError."""
    check_names(formats, FORMATS, "format")


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
        if (path.name in _NAMES or _COMPOSE.fullmatch(path.name)) and not _is_ours(path):
            raise HeadcountError(f"{given} holds a {path.name} that headcount did not write; name another folder")


def _is_ours(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(WRITTEN)) == WRITTEN.encode()
    except OSError:
        return False


def write(answer: PlanResult, folder: Path, formats: Sequence[str], option: str = "folder") -> list[Path]:
    """Write the files, which replace earlier ones of headcount; all texts are made before the first is written."""
    check_folder(option, folder)
    texts = manifests(answer, formats)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise HeadcountError(f"{option} {folder} cannot be created: {(error.strerror or str(error)).lower()}") from None
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]
