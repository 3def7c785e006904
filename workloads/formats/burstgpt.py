"""BurstGPT traces, releases 1 to 3: CSV with seconds, request and response tokens, perhaps sessions.

Rows without response tokens are failed requests. Release 3 has sessions, whose turns keep their times of arrival.
"""

from typing import Final

from workloads.formats.parsing.columns import Columns, csv_format

_COLUMNS: Final = Columns(
    time="Timestamp",
    time_unit_s=1.0,
    prompt=("Request tokens",),
    output="Response tokens",
    failed="failed requests (0 tokens)",
)
FORMAT: Final = csv_format(
    name="burstgpt",
    columns=_COLUMNS,
    optional={"session": "Session ID"},
    looks_like="CSV with Timestamp,Request tokens,Response tokens",
    source="HPMLL/BurstGPT, CC-BY-4.0 (Wang et al., BurstGPT, KDD 2025)",
)
