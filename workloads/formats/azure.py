"""Azure LLM inference traces of 2023, 2024 or 2025: CSV with a timestamp, prompt tokens, output tokens.

Timestamps have any number of decimals, all with or all without a zone. Each request's content is its own.
"""

from typing import Final

from workloads.formats.parsing.columns import Columns, csv_format

FORMAT: Final = csv_format(
    name="azure",
    columns=Columns(time="TIMESTAMP", prompt=("ContextTokens",), output="GeneratedTokens"),
    marks=("TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    looks_like="CSV with TIMESTAMP,ContextTokens,GeneratedTokens",
    source="Azure/AzurePublicDataset, AzureLLMInferenceTrace_*.csv, CC-BY-4.0 (Patel et al., Splitwise, ISCA 2024)",
)
