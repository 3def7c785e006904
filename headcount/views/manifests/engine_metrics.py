"""The series of an engine's own metrics that alerts and the dashboard ask for."""

from collections.abc import Mapping
from typing import Final

from headcount.views.manifests.fleet import DeployedFleet

_VLLM: Final = {
    "ttft": "vllm:time_to_first_token_seconds", "tpot": "vllm:request_time_per_output_token_seconds",
    "running": "vllm:num_requests_running", "waiting": "vllm:num_requests_waiting",
    "kv": "vllm:kv_cache_usage_perc",
}  # fmt: skip
"""vLLM 0.33 v1/metrics/loggers.py."""
_SGLANG: Final = {
    "ttft": "sglang:time_to_first_token_seconds", "tpot": "sglang:request_time_per_output_token_seconds",
    "running": "sglang:num_running_reqs", "waiting": "sglang:num_queue_reqs", "kv": "sglang:token_usage",
}  # fmt: skip
"""SGLang 0.5.23 srt/observability/metrics_collector.py, with --enable-metrics."""


def engine_metrics(fleet: DeployedFleet) -> Mapping[str, str]:
    """By what they count; of histograms, without the endings of their parts."""
    return _SGLANG if fleet.is_sglang else _VLLM


def of_model(fleet: DeployedFleet, more: str = "") -> str:
    """The selector of this model's series."""
    return "{" + ",".join(filter(None, (f'model_name="{fleet.model}"', more))) + "}"
