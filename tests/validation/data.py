"""The folder of measurements that others published, which is not part of the repository."""

from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason="the folder of measurements is absent")
