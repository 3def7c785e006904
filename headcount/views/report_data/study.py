"""What a report shows of the deployment that leads a result."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from files.documents import Json
from headcount.queries.money import usd_per_month
from headcount.queries.report_data.study import Study, curve_json
from headcount.text.blocks import Table
from headcount.text.words import COVERED
from headcount.views.report_data.assumptions import of_terms
from headcount.views.report_data.deployment import deployment_json
from headcount.views.report_data.memory import memory_json
from headcount.views.report_data.workload import assumptions_of, workload_text
from simulator.deployment import Deployment
from simulator.study.capacity_row import CapacityRow

if TYPE_CHECKING:
    from headcount.queries.result import Result

MOST_STEPS: Final = 24  # of a staircase
_ENDS: Final = (
    "users", "users_low", "users_high", "users_low_sampling", "users_high_sampling", "users_at_step_time_error_high",
    "users_at_step_time_error_low", "step_time_error", "users_at_ttft_error_high",
    "users_at_ttft_error_low", "users_at_kv_cache_low", "users_at_kv_cache_high", "replications", "precision",
    "users_low_precision", "users_high_precision",
)  # fmt: skip
Bar = tuple[str, float | None, str, str]
"""Name, value, label, and a kind of bar: plain, marked or pale."""


def study_json(answer: "Result", study: Study | None) -> Json:
    """Its figures; hardly any where nothing runs. `answer` is complete."""
    told = {"step_time_error": next((note.text for note in answer.diagnostics if note.code == "step-time-error"), "")}
    if study is None or study.row.plan is None:
        return told
    question, row, plan = study.question, study.row, study.row.plan
    found: dict[str, object] = told | {
        "deployment": deployment_json(plan, study.servers),
        "memory": memory_json(plan.budget),
        "workload": workload_text(question),
        "assumptions": assumptions_of(question, plan),
        "limits": _limits(row),
        "slo": vars(question.slo),
        "seed": question.seed,
    }
    if not row.users:
        return found
    return found | {
        "ends": {name: getattr(row, name) for name in _ENDS},
        "fleet": f"{row.gpus} × {plan.gpu.name}",
        "load_users": study.load_users,
        "curve": curve_json(row),
        "binding": row.binding,
        "step_causes": row.step_causes,
        "staircase": staircase_json(study),
        **answer.evidence,
    }


def server_json(plan: Deployment) -> Json:
    """Of one server that was measured."""
    return {
        "deployment": deployment_json(plan, 1),
        "memory": memory_json(plan.budget),
        "assumptions": of_terms("memory and step times", plan.assumptions),
    }


def staircase_json(study: Study) -> dict[str, object] | None:
    """Users and dollars by number of servers, in proportion to what was simulated."""
    row, plan = study.row, study.row.plan
    if plan is None or not row.users_low:
        return None
    serving = max(study.servers - study.spare, 1)
    first = max(study.servers - MOST_STEPS // 2, 1)
    last = min(max(2 * study.servers, study.servers + 3), first + MOST_STEPS - 1)
    steps = [
        {
            "servers": count,
            "gpus": count * plan.gpus,
            "users": math.floor(row.users_low * study.scale * max(count - study.spare, 0) / serving + 1e-9),
            "usd_per_month": usd_per_month(count * plan.gpus, study.usd_per_gpu_hour),
        }
        for count in range(first, last + 1)
    ]
    return {"steps": steps, "bought": study.servers, "spare": study.spare, "users_needed": study.users_needed}


def _limits(row: CapacityRow) -> list[str]:
    """What the answer does not cover."""
    plan = row.plan
    assert plan is not None, "only what runs has limits"
    said = [f"Outside the measured range: {text}." for text in plan.latency.warnings]
    said += [f"Not measured on this GPU: {text}." for text in plan.latency.unmeasured]
    said += [f"Not simulated: {name} ({value}): {why}." for name, value, why in plan.not_simulated]
    return [
        *said,
        f"The interval of users covers {COVERED}. It does not cover workload error: your users may differ from these.",
        "Not included: networks between users and servers, delay of load balancers, other programs on the GPUs, and "
        "failures beyond the spare servers.",
        "The quality of answers is not evaluated: a smaller weight or KV-cache format may change it.",
    ]


def layouts_json(
    title: str, axis: str, bars: Iterable[Bar], said: Sequence[str], *, text: str = "count", table: Table | None = None
) -> Json:
    """What the section of the layouts draws; `text` says how the axis writes its figures."""
    shown = table or Table(columns=(), rows=[], text_columns=())
    return {
        "title": title,
        "axis": axis,
        "text": text,
        "bars": [dict(zip(("name", "value", "label", "kind"), bar, strict=True)) for bar in bars],
        "columns": shown.columns,
        "rows": shown.rows,
        "text_columns": list(shown.text_columns),
        "said": said,
    }
