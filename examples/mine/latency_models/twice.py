"""Step times of the physical model, twice as long: a server that shares its GPUs."""

from dataclasses import replace

from simulator.latency.forms import physical
from simulator.latency.model import LatencyModel, ServedModel


def latency_model(served: ServedModel) -> LatencyModel:
    found = physical.latency_model(served)
    return replace(found, name="twice", step_times=found.step_times.times(2.0))
