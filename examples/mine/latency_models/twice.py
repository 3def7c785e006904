"""Step times of the physical model, twice as long: a server that shares its GPUs."""

from dataclasses import replace

from simulator.latency.forms import physical
from simulator.latency.model import Deployment, LatencyModel


def latency_model(deployment: Deployment) -> LatencyModel:
    found = physical.latency_model(deployment)
    return replace(found, name="twice", step_times=found.step_times.times(2.0))
