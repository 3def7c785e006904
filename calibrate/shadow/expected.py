"""What a deployment's engines would have shown under a window's load."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from calibrate.shadow.fitted_load import HISTORY, requests_like
from calibrate.shadow.windows import Window
from simulator.deployment import Deployment
from simulator.results import result_since, snapshot
from simulator.simulation import Simulation

REPLICATIONS: Final = 6
WARM_WINDOWS: Final = 2  # of the first window's load, before it
FIGURES: Final = ("ttft_s", "itl_s", "running", "waiting", "kv_usage", "prefix_hit_rate")
SUMS: Final = ("running", "waiting")  # over servers; the others are means


@dataclass(frozen=True, kw_only=True)
class Expected:
    """A figure's mean over replications, and the standard deviation of one."""

    mean: float
    deviation: float

    @property
    def relative(self) -> float:
        return self.deviation / self.mean if self.mean > 0 else math.inf


def expect(deployment: Deployment, windows: Sequence[Window], *, seed: int = 0) -> dict[str, Expected]:
    """FIGURES of the last window as `Window.figures` has them, from it and the windows before.

    Servers are alike, and each gets its part of the requests: one is simulated, and the noise of several is smaller.
    Figures that no replication has are missing.
    """
    last = windows[-1]
    engines = last.engines
    if not engines or not last.arrivals:
        return {}
    recent = _with_warm_start(windows[-HISTORY - 1 :])
    shown = [_shown(deployment, recent, np.random.default_rng([seed, number])) for number in range(REPLICATIONS)]
    servers, found = engines / deployment.data_parallel_size, dict[str, Expected]()
    for name in FIGURES:
        values = [each[name] for each in shown if name in each]
        if values:
            times = servers if name in SUMS else 1.0
            noise = float(np.std(values, ddof=1)) if len(values) > 1 else math.inf
            found[name] = Expected(mean=times * float(np.mean(values)), deviation=noise * times / math.sqrt(servers))
    return found


def _with_warm_start(windows: Sequence[Window]) -> list[Window]:
    """The first window's load some times more before it, so that no engine starts empty."""
    missing = max(WARM_WINDOWS - len(windows) + 1, 0)
    first = windows[0]
    earlier = [_moved(first, -number * first.length_s) for number in range(missing, 0, -1)]
    return [*earlier, *windows]


def _moved(window: Window, by_s: float) -> Window:
    return replace(window, start_s=window.start_s + by_s, end_s=window.end_s + by_s)


def _shown(deployment: Deployment, windows: Sequence[Window], rng: np.random.Generator) -> dict[str, float]:
    """What one server shows in the last window; nothing where no request was drawn for it."""
    servers = max(windows[-1].engines // deployment.data_parallel_size, 1)
    table = requests_like(windows, servers, deployment, rng)
    if not table.num_requests:
        return {}
    simulation = Simulation(deployment.fleet(1, None), table)
    begin_s = windows[-1].start_s - windows[0].start_s
    simulation.run(begin_s)
    before = snapshot(simulation)
    simulation.run(begin_s + windows[-1].length_s)
    result, first_s = result_since(simulation, before), simulation.requests["first_token_s"]
    came = (first_s > begin_s) & (first_s <= begin_s + windows[-1].length_s)
    ttft_s = (first_s - simulation.requests["arrival_s"])[came]
    found = {
        "ttft_s": float(ttft_s.mean()) if len(ttft_s) else None,
        "itl_s": result.itl_s["mean"],
        "running": result.running_mean,
        "waiting": result.waiting_mean,
        "kv_usage": result.kv_usage_mean,
        "prefix_hit_rate": result.prefix_hit_rate,
    }
    return {name: value for name, value in found.items() if value is not None}
