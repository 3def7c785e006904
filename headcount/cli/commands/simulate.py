"""`headcount simulate`: one load on one deployment."""

from typing import Any

import click

from headcount.cli.option_types import COUNT, FilePath, Number, TokenCount, WholeNumber
from headcount.cli.options import (
    cold_start_option,
    deployment_options,
    engine_options,
    output_options,
    scheduler_options,
    workload_options,
)


@click.command("simulate")
@deployment_options
@click.option("--replicas", type=WholeNumber(1), default=1, show_default=True, help="Engines behind the router.")
@click.option("--workload", help="A trace file to replay, or a preset with --users.")
@workload_options
@click.option("--users", type=WholeNumber(1), help="Closed-loop users; with --think-time, or a preset's.")
@click.option("--concurrency", type=WholeNumber(1), help="Clients without think time, all starting at 0.")
@click.option("--rate", type=Number("requests per second, or inf"), help="Open arrivals per second.")
@click.option(
    "--burstiness",
    type=Number("1 for Poisson, less for bursts"),
    help="Of open arrivals, as in vLLM.  [default: 1, Poisson]",
)
@click.option("--input-len", type=TokenCount(), help="Prompt tokens.")
@click.option("--output-len", type=TokenCount(), help="Output tokens.")
@click.option(
    "--length-spread",
    type=Number("1 for exact lengths, 0.8 for 80 % to 100 % of them"),
    help="0.8: lengths uniform in 0.8–1 × those.  [default: 1]",
)
@click.option("--num-requests", type=COUNT, help="How many.  [default: 10 × concurrency, or the whole file]")
@scheduler_options
@cold_start_option
@click.option("--requests-out", type=FilePath(), help="CSV with every request's times.")
@click.option("--steps-out", type=FilePath(), help="JSON lines with every step's decisions.")
@output_options
def command(**values: Any) -> int:
    """Serve one load and report latency percentiles, throughput, KV use.

    \b
    Loads:  --workload FILE                          replay a trace as it is
            --workload chat --users 500              closed-loop users of a preset
            --input-len I --output-len O --users N --think-time 30s
            --input-len I --output-len O --concurrency C
            --input-len I --output-len O --rate R --num-requests N
    """
    from headcount.cli.json_output import print_json  # noqa: PLC0415  imported once the command runs
    from headcount.cli.progress import note_compiling  # noqa: PLC0415
    from headcount.profile_warnings import warn_outside_profile  # noqa: PLC0415
    from headcount.release_warning import warn_newer_release  # noqa: PLC0415
    from headcount.simulate import Outputs, answer_json, serve  # noqa: PLC0415
    from headcount.strict import (  # noqa: PLC0415
        OUTSIDE_CALIBRATION,
        assumed_notes,
        assumptions_json,
        check_architecture,
        outside_calibration,
    )
    from headcount.text.answer_notes import error_note, layout_text, settings_note  # noqa: PLC0415
    from headcount.text.text import simulate_text  # noqa: PLC0415
    from kvcache.models.catalog import find_gpu, load_model  # noqa: PLC0415
    from simulator.deployment import plan_replica  # noqa: PLC0415

    outputs = Outputs(requests=values["requests_out"], steps=values["steps_out"])
    outputs.check(values["replicas"] * values["data_parallel_size"])
    architecture = load_model(values["model"])
    check_architecture(architecture, values["strict"])
    plan = plan_replica(
        architecture,
        find_gpu(values["gpu"]),
        engine_options(values),
        tensor_parallel_size=values["tensor_parallel_size"] or 1,
    )
    warn_newer_release(values["vllm_version"])
    if outside_calibration(plan.latency, plan.gpu.name, values["strict"]):
        return OUTSIDE_CALIBRATION
    fleet = plan.fleet(values["replicas"], values["router"])
    note_compiling()
    served = serve(fleet, values, outputs)
    if warn_outside_profile(plan.latency, [served.step]) and values["strict"]:
        return OUTSIDE_CALIBRATION
    if values["as_json"]:
        head = {"schema_version": 1, "model": plan.architecture.name, "gpu": plan.gpu.name}
        layout = {"replicas": values["replicas"], "tp": plan.tensor_parallel_size, "dp": plan.data_parallel_size}
        assumed = {
            "architecture_assumptions": assumptions_json(architecture.assumptions),
            "not_simulated": assumptions_json(plan.not_simulated),
        }
        blocks = {"num_gpu_blocks": plan.engine.num_gpu_blocks, "settings": plan.settings}
        print_json(head | layout | blocks | assumed | answer_json(served, plan.latency))
        return 0
    split = layout_text(values["replicas"], plan.tensor_parallel_size, plan.data_parallel_size)
    title = f"{plan.architecture.name} on {plan.gpu.name}, {split}: {served.description}"
    notes = [*assumed_notes((*architecture.assumptions, *plan.not_simulated)), settings_note(plan), *served.notes]
    notes.append(error_note(plan.latency, served.step.sequences))
    simulate_text(served.result, title=title, notes=notes)
    return 0
