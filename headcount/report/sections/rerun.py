"""How to get the same figures again."""

import platform
from importlib.metadata import PackageNotFoundError, version

from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import render_template

TITLE = "Run it again"
ORDER = 85
PACKAGES = ("headcount", "numpy", "numba", "scipy")


def render(answer: CapacityAnswer) -> str:
    return rendered(answer.asked, answer.question.seed)


def rendered(command: str, seed: int) -> str:
    """The command with its seed, and the versions that give the same figures."""
    versions = [(name, _version(name)) for name in PACKAGES]
    return render_template(
        "rerun.html",
        command=command,
        seed=seed,
        versions=[*versions, ("Python", platform.python_version())],
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:  # run from a source tree
        return "not installed"
