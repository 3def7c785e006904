"""The labels of the report's latency axis."""

from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="the report needs the extra 'report'")

from matplotlib.figure import Figure

from headcount.report.charts import POINTS_PER_INCH, WIDTH
from headcount.report.sections.latency import _draw, _Latency
from headcount.text.units import seconds


@pytest.mark.parametrize("median_s", [0.02, 0.11, 0.3, 1.5])
@pytest.mark.parametrize("sigma", [0.05, 0.4, 0.9, 1.6, 2.5])
def test_neighbouring_labels_leave_a_gap(median_s: float, sigma: float) -> None:
    times_s = median_s * np.exp(sigma * np.random.default_rng(0).standard_normal(5000))
    figure = Figure(figsize=(WIDTH / POINTS_PER_INCH, 260 / POINTS_PER_INCH), layout="constrained")
    _draw(figure, _Latency("TTFT", times_s, 1.0, 0.95, seconds, True))
    figure.canvas.draw()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    shown = [
        label.get_window_extent()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high and label.get_text()
    ]
    assert len(shown) >= 2
    assert all(left.x1 + 4 < right.x0 for left, right in pairwise(shown))
