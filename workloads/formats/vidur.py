"""Vidur's traces: CSV of prefill and decode tokens, with arrivals in seconds or none: then all come at once."""

from typing import Final

from workloads.formats.parsing.columns import Columns, csv_format

FORMAT: Final = csv_format(
    name="vidur",
    columns=Columns(prompt=("num_prefill_tokens",), output="num_decode_tokens", time_unit_s=1.0),
    optional={"time": "arrived_at"},
    looks_like="CSV with num_prefill_tokens,num_decode_tokens",
    source="microsoft/vidur, data/processed_traces, MIT (Agrawal et al., Vidur, MLSys 2024)",
)
