"""A result with a fleet to deploy: its manifests."""

import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from headcount.queries.result import Result

_MANIFESTS: Final = "headcount.views.manifests.written"  # by name: views import results, results no views


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class DeployableResult(Result):
    """Of a plan: its cheapest fleet as files for kubectl, docker compose, helm and Prometheus."""

    def manifests(self, *formats: str) -> dict[str, str]:
        """Texts by file name: kubernetes, or those given of the formats that `plan --emit` has.

        With alerts.yaml, rules for Prometheus with the plan's figures. Raises HeadcountError for a fleet that a format
        cannot say, such as one behind another router.
        """
        found: dict[str, str] = _manifests().manifests(self, formats)
        return found

    def emit(self, folder: str | os.PathLike[str], *formats: str) -> list[Path]:
        """Write the same to a folder, which is created if need be; earlier files of headcount's are replaced.

        Raises HeadcountError where a file of such a name is another's, before anything is written.
        """
        found: list[Path] = _manifests().write(self, Path(folder), formats)
        return found


def _manifests() -> Any:
    return import_module(_MANIFESTS)
