"""A plan as one HTML page: the fleet, what it was compared with, the chain from people to GPUs."""

import json
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from boundary.outputs import write_whole
from headcount.answers import plan_text
from headcount.answers.plan import PlanAnswer
from headcount.answers.plan_rows import FleetRow
from headcount.report.charts import FIRST, INK, SECOND, chart, thousands
from headcount.report.html import figure, figures, join, page, render_template, spaced, table
from headcount.report.sections import notes, rerun
from headcount.text.blocks import Table
from headcount.text.units import counted
from headcount.text.words import sentence, slo_text
from workloads.demand import LINKS


def write(path: Path, answer: PlanAnswer) -> None:
    """Write the page; the file appears whole or not at all."""
    asked = answer.race.question
    made = page(
        "plan.html",
        [
            ("answer", "The answer", _answer(answer)),
            ("fleets", "What else was compared", _fleets(answer)),
            ("chain", "From people to GPUs", _chain(answer)),
            ("serve", "Start it", _serve(answer)),
            ("layouts", "Every layout", _table(plan_text.layouts_table(answer))),
            ("notes", notes.TITLE, notes.render(answer)),
            ("rerun", rerun.TITLE, rerun.rendered(answer.asked, asked.seed)),
            ("every-figure", "Every figure", _json(answer)),
        ],
        model=asked.architecture.name,
        people=counted(round(answer.demand.users), "user"),
        workload=answer.workload,
        vllm_version=asked.variants[0].vllm_version,
    )
    write_whole(path, made)


def _answer(answer: PlanAnswer) -> str:
    beside = [str(block) for block in plan_text.head(answer)[2:]]
    return render_template(
        "answer.html",
        headline=spaced(plan_text.headline(answer)),
        beside=[spaced(f"{sentence(text)}.") for text in (plan_text.cost(answer), *beside) if text],
        slo=spaced(slo_text(answer.race.question.slo)),
        others=[],
        interval="simulation noise, step-time error and the error of the KV blocks" if answer.best else "",
        error="Its lower end is the number to sign",
        alerts=[str(note) for note in answer.alerts],
    )


def _fleets(answer: PlanAnswer) -> str:
    rows = [row for row in answer.fleets if row.runs]
    reasons = [(row.gpu, row.reason) for row in answer.fleets if row.reason and not row.runs]
    drawn = _cost_figure(rows) if len(rows) > 1 else ""
    shown = _table(plan_text.fleets_table(rows)) if rows else ""
    nearest = [
        render_template("paragraph.html", text=sentence(plan_text.nearest_text(each))) for each in answer.nearest
    ]
    return join(drawn, shown, render_template("reasons.html", reasons=reasons), *nearest)


def _cost_figure(rows: list[FleetRow]) -> str:
    alt = "; ".join(f"{plan_text.gpus_text(row)}: ${row.usd_per_month:,.0f} a month" for row in rows)
    svg = chart(lambda drawn: _draw_costs(drawn, rows), name="cost-per-gpu", alt=f"Cost a month. {alt}.")
    least, most = rows[0].usd_per_month or 0.0, rows[-1].usd_per_month or 0.0
    title = f"The same users cost from ${least:,.0f} to ${most:,.0f} a month"
    return figures(figure(title, svg, "The cheapest layout of each kind of GPU; light: estimated, not simulated."))


def _draw_costs(drawn: Figure, rows: list[FleetRow]) -> None:
    axes = drawn.subplots()
    shown = rows[::-1]  # the cheapest on top
    costs = [row.usd_per_month or 0.0 for row in shown]
    bars = axes.barh([plan_text.gpus_text(row) for row in shown], costs, color=FIRST)
    for bar, row in zip(bars, shown, strict=True):
        if row.state == "screened":
            bar.set_alpha(0.4)
        elif row is rows[0]:
            bar.set_color(SECOND)
        cost = row.usd_per_month or 0.0
        middle = bar.get_y() + bar.get_height() / 2
        axes.annotate(f"{cost:,.0f}", (cost, middle), xytext=(4, 0), textcoords="offset points", va="center", color=INK)
    axes.set_xlim(0, 1.2 * max(costs))
    axes.set_xlabel("US dollars a month")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
    thousands(axes.xaxis)


def _chain(answer: PlanAnswer) -> str:
    columns = ("link", "value", "where it comes from")
    rows = [
        (sentence(LINKS[link.name].meaning), link.shown, f"assumed: {link.source}" if link.assumed else "given")
        for link in answer.demand.links
    ]
    lines = [str(line) for line in plan_text.chain(answer)]
    return join(
        table(columns, rows, caption="", layout="text"),
        *(render_template("paragraph.html", text=spaced(line)) for line in lines[len(answer.demand.links) - 1 :]),
        *(render_template("paragraph.html", text=spaced(sentence(str(line)))) for line in plan_text.money(answer)),
    )


def _serve(answer: PlanAnswer) -> str:
    best = answer.best
    if best is None or best.serve_line is None:
        return ""
    says = f"Start {counted(best.servers or 0, 'server')} behind a router, each with:"
    return render_template("serve.html", says=says, command=best.serve_line)


def _table(found: Table) -> str:
    bold = f" bold-{found.bold_column + 1}" if found.bold_column is not None else ""
    return table(found.columns, found.rows, caption="", layout=f"numbers last-is-text{bold}")


def _json(answer: PlanAnswer) -> str:
    return render_template("json.html", text=json.dumps(answer.to_json(), indent=1, ensure_ascii=False))
