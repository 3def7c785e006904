"""A plan as files that deploy its cheapest fleet, and alerts and a dashboard with its figures."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from files.errors import HeadcountError
from files.names import check_names
from files.outputs import write_whole
from headcount.queries.plan import PlanResult
from headcount.views.manifests import (
    alerts,
    dashboard,
    docker_compose,
    dynamo,
    keda,
    kserve,
    kubernetes,
    llm_d,
    production_stack,
)
from headcount.views.manifests.fleet import DeployedFleet, deployed_fleet
from headcount.views.manifests.folder import ALERTS, DASHBOARD, check_folder

KEDA: Final = "keda"
FORMATS: Final[Mapping[str, Callable[[DeployedFleet], dict[str, str]]]] = {
    "kubernetes": kubernetes.files,
    "docker-compose": docker_compose.files,
    "production-stack": production_stack.files,
    "kserve": kserve.files,
    "llm-d": llm_d.files,
    "dynamo": dynamo.files,
    KEDA: keda.files,
}
DEFAULT: Final = "kubernetes"


def manifests(answer: PlanResult, formats: Sequence[str]) -> dict[str, str]:
    """Texts by file name. Raises HeadcountError for an unknown format, or for a fleet that one cannot say."""
    check_formats(formats)
    fleet = deployed_fleet(answer, is_scaled=KEDA in formats)
    found = dict[str, str]()
    for name in formats or (DEFAULT,):
        found |= FORMATS[name](fleet)
    return found | {ALERTS: alerts.alerts(fleet), DASHBOARD: dashboard.dashboard(fleet)}


def check_formats(formats: Sequence[str]) -> None:
    """Raises UnknownNameError."""
    check_names(formats, FORMATS, "format")


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
