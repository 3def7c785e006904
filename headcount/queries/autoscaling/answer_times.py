"""How long users of a fleet over time wait for their answers, so that as many are there as were asked for."""

from dataclasses import asdict, replace

import numpy as np

from simulator.deployment import Deployment
from simulator.study.estimate import estimate_users
from simulator.study.loads import UserLoad
from simulator.study.replication import simulate_users
from simulator.study.slo import SLO
from workloads.populations.equilibrium import equilibrium
from workloads.populations.population import Population
from workloads.populations.sessions import NO_TIME, AnswerTimes

MOST_USERS = 20_000  # that are simulated to find out


def answer_times(population: Population, users: int, plan: Deployment, replicas: int, seed: int) -> AnswerTimes:
    """Those of so many users who stay, as `simulate` has them without a duration.

    NO_TIME where they wait longer than they think, or where conversations go on beyond the longest context.
    """
    longest = plan.engine.max_model_len
    load = UserLoad(population=population, max_model_len=longest, seed=seed)
    expected = estimate_users(plan, replicas, load, SLO()).answers
    if expected == NO_TIME or population.at_limit.goes_on:
        return NO_TIME
    some = max(round(replicas * min(1.0, MOST_USERS / users)), 1)  # servers are alike: a part of them shows it as well
    fleet, met = plan.fleet(some, None), replace(load, answers=expected)
    _, shown = simulate_users(fleet, met, max(round(users * some / replicas), 1))
    mean = equilibrium(population, longest)
    factor = float(np.nanmean(shown.times.e2e_s)) / float(expected.of(mean.prompt, mean.context - mean.prompt))
    return AnswerTimes(**{name: factor * value for name, value in asdict(expected).items()})
