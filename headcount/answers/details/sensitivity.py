"""What each assumption does to the users, and what a longer context takes, by estimates that need no simulation."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

from boundary.files import InputError
from headcount.answers.varied.candidates import candidates, change_text, look_at
from simulator.study.capacity_table import CapacityQuestion, CapacityRow
from simulator.study.variations.variation import look
from workloads.populations.population import Population
from workloads.populations.summary import population_summary
from workloads.traces.trace import Trace
from workloads.traffic import changed, changed_trace
from workloads.traffic_changes import Amount

SWING: Final = 0.2
CONTEXTS: Final = (0.5, 1.0, 2.0, 4.0)
USERS: Final = (0.5, 1.0, 2.0, 4.0)
_TRAFFIC: Final = {"context": "context length", "output": "length of answers", "think-time": "think time"}


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """Estimates around one row; `users` is what its fleet is said to serve, `load_users` the load."""

    question: CapacityQuestion
    row: CapacityRow
    users: float
    load_users: float

    @cached_property
    def _here(self) -> CapacityQuestion:
        args = replace(self.question.args, tensor_parallel_size=self.row.tp)
        return replace(self.question, gpus=(self.row.gpus,), args=args)

    @cached_property
    def _base(self) -> int:
        return look(self._here).users

    def to_json(self) -> dict[str, Any]:
        """Empty where the estimate serves nobody."""
        if not self._base or not self.users:
            return {}
        contexts = [(factor, self._ratio(self._with_traffic("context", factor))) for factor in CONTEXTS]
        swings = [
            {"name": name, "value": self._values.get(name, ""), "less": less, "more": more}
            for name, less, more in self._swings()
            if less is not None and more is not None
        ]
        return {
            "swing": SWING,
            "tornado": sorted(swings, key=lambda each: -abs(each["more"] - each["less"])),
            "contexts": self._grid(contexts),
            "estimated_lifts": list(self._lifts()),
        }

    def _lifts(self) -> Iterator[dict[str, Any]]:
        """Changes of one setting; estimates know nothing of routers."""
        plan = self.row.plan
        for name, value in candidates(self._here, self.row, plan) if plan else ():
            if name != "router" and (looked := look_at(self._here, name, value)) is not None:
                yield {"change": change_text(name, value), "ratio": looked.users / self._base}

    @cached_property
    def _values(self) -> dict[str, str]:
        """What is assumed now."""
        load, slo = self.question.workload, self.question.slo
        if isinstance(load, Population):
            means = population_summary(load)
            prompt, answer = means.mean_context_tokens - means.mean_output_tokens, means.mean_output_tokens
        else:
            prompt, answer = load.table.prompt_tokens.mean(), load.table.output_tokens.mean()
        return {
            "context length": f"{prompt:,.0f} tokens a prompt on average",
            "length of answers": f"{answer:,.0f} tokens on average",
            "think time": f"{self.question.think_time_s:,.0f} s on average",
            "step times": self._speed_source,
            "TTFT limit": f"{slo.ttft_s:g} s" if slo.ttft_s else "",
            "TPOT limit": f"{1000 * slo.tpot_s:g} ms" if slo.tpot_s else "",
        }

    @property
    def _speed_source(self) -> str:
        latency = self.row.plan.latency if self.row.plan else None
        if latency is None or not (latency.is_given or latency.calibrated):
            return "simulated, not measured on yours"
        return "as it was given" if latency.is_given else "from your latency profile"

    def _swings(self) -> Iterator[tuple[str, float | None, float | None]]:
        """Users over those of the base, with a fifth less and a fifth more of each assumption."""
        factors, slo = (1 - SWING, 1 + SWING), self.question.slo
        for key, name in _TRAFFIC.items():
            less, more = (self._ratio(self._with_traffic(key, factor)) for factor in factors)
            yield name, less, more
        slower = [self._ratio(replace(self._here, step_time_factor=factor)) for factor in factors]
        yield "step times", slower[0], slower[1]
        for name in ("ttft_s", "tpot_s"):
            limit = getattr(slo, name)
            if limit is not None:
                found = [
                    self._ratio(replace(self._here, slo=replace(slo, **{name: factor * limit}))) for factor in factors
                ]
                yield f"{name[:4].upper()} limit", found[0], found[1]

    def _with_traffic(self, name: str, factor: float) -> CapacityQuestion | None:
        """None where the load has no such thing."""
        if factor == 1:
            return self._here
        changes = {name: Amount(value=factor, is_factor=True)}
        load = self.question.workload
        try:
            found: Population | Trace = (
                changed_trace(load, changes) if isinstance(load, Trace) else changed(load, changes)
            )
        except InputError:
            return None
        think_time_s = found.think_time_s.mean() if isinstance(found, Population) else self.question.think_time_s
        return replace(self._here, workload=found, think_time_s=think_time_s)

    def _ratio(self, asked: CapacityQuestion | None) -> float | None:
        if asked is None:
            return None
        try:
            return look(asked).users / self._base
        except ValueError:  # such requests cannot be served at all
            return None

    def _grid(self, contexts: list[tuple[float, float | None]]) -> dict[str, Any] | None:
        """Servers and GPUs by context and users, whole servers in proportion to the number to sign."""
        known = [(factor, ratio) for factor, ratio in contexts if ratio is not None]
        if len(known) < 2 or self.row.plan is None:
            return None
        each = self.users / self.row.replicas
        gpus, users = self.row.plan.gpus, [round(share * self.load_users) for share in USERS]
        rows = [
            {
                "factor": factor,
                "gpus": [gpus * math.ceil(count / (each * ratio)) if each * ratio else None for count in users],
            }
            for factor, ratio in known
        ]
        return {"users": users, "rows": rows}
