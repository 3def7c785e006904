"""Traces of BLIS, the inference simulator: the CSV of its trace v2, whose YAML header is another file."""

from pathlib import Path
from typing import Final

from workloads.formats.parsing.csv_rows import csv_rows, first_names, header_of
from workloads.formats.parsing.rows import Request, Rows
from workloads.traces.trace_format import Recorded, TraceFormat

_NEEDED: Final = (
    "request_id", "session_id", "prefix_group", "prefix_length", "input_tokens", "output_tokens", "server_input_tokens",
    "arrival_time_us", "status",
)  # fmt: skip
_OPTIONAL: Final = ("vllm_priority", "think_time_us", "tenant_id")
_SERVED: Final = ("ok", "")


def read(path: Path, _block_size: int | None, num_requests: int | None) -> Recorded:
    """Times are microseconds. Requests whose status is not ok are left out.

    The prompt is what the server reported, else `prefix_length` tokens that a `prefix_group` has in common and
    `input_tokens`. A turn with `think_time_us` follows the one before it; 0 means that none was recorded.
    """
    rows, header = Rows(path, num_requests), header_of(path)
    names = (*_NEEDED, *(name for name in _OPTIONAL if name in header))
    for read_rows in csv_rows(path, names, lambda: rows.num_wanted):
        texts = ("request_id", "session_id", "prefix_group", "status", *(name for name in names if name == "tenant_id"))
        text = {name: read_rows[name].texts() for name in texts}
        tokens = {
            name: read_rows[name].tokens(least=0).tolist() for name in names if name.endswith(("_tokens", "_length"))
        }
        times = {name: read_rows[name].numbers().tolist() for name in names if name.endswith("_us")}
        priority = read_rows["vllm_priority"].whole().tolist() if "vllm_priority" in names else None
        for row, status in enumerate(text["status"]):
            rows.check_new(read_rows["status"].place(row), "request_id", text["request_id"][row])
            own, output = tokens["input_tokens"][row], tokens["output_tokens"][row]
            group = text["prefix_group"][row]
            common = tokens["prefix_length"][row] if group else 0
            prompt = tokens["server_input_tokens"][row] or common + own
            if status not in _SERVED or not prompt or not output:
                rows.leave_out("requests that failed" if status not in _SERVED else "requests without tokens")
                continue
            think_us = times["think_time_us"][row] if "think_time_us" in times else 0.0
            request = Request(
                prompt_tokens=prompt,
                output_tokens=output,
                arrival_s=times["arrival_time_us"][row] / 1e6,
                session=text["session_id"][row] or None,
                think_s=think_us / 1e6 or None,
                priority=0 if priority is None else priority[row],
                tenant=text["tenant_id"][row] if "tenant_id" in text else None,
                starts_with=(group, common) if common else None,
            )
            rows.add(read_rows["status"].place(row), request)
    return rows.recorded()


FORMAT: Final = TraceFormat(
    name="blis",
    looks_like="CSV with request_id, slo_class, prefix_group, arrival_time_us (trace v2)",
    recognises=lambda head: {"arrival_time_us", "prefix_group", "slo_class"} <= set(first_names(head)),
    read=read,
    source="inference-sim/inference-sim, sim/workload/tracev2.go, Apache-2.0",
)
