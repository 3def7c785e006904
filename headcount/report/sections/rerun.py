"""How to get the same figures again."""

import platform
from importlib.metadata import version

from headcount import __version__
from headcount.answers.capacity import CapacityAnswer
from headcount.report.html import render_template

TITLE = "Run it again"
ORDER = 85
PACKAGES = ("numpy", "numba", "scipy")


def render(answer: CapacityAnswer) -> str:
    return rendered(answer.asked, answer.question.seed)


def rendered(command: str, seed: int) -> str:
    """The command with its seed, and the versions that give the same figures."""
    versions = [(name, version(name)) for name in PACKAGES]
    return render_template(
        "rerun.html",
        command=command,
        seed=seed,
        versions=[("headcount", __version__), *versions, ("Python", platform.python_version())],
    )
