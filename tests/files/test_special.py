"""scipy's special functions: the same ones, loaded alone."""

import subprocess
import sys

import scipy.special

from files import special


def test_they_are_scipys_own() -> None:
    assert all(getattr(special, name) is getattr(scipy.special, name) for name in ("ndtri", "stdtrit", "gammaln"))


def test_nothing_else_of_their_package_is_imported() -> None:
    said = "import sys; from files import special; special.ndtri(0.5); print('numpy.testing' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"


def test_scipy_can_be_imported_afterwards() -> None:
    said = "from files import special; special.ndtri(0.5); from scipy.stats import norm; print(norm.ppf(0.5))"
    found = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    assert float(found.stdout) == 0.0
