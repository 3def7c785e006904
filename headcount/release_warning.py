"""What is said of a vLLM release that is not known yet."""

import sys

from kvcache.releases import newer_than_known


def warn_newer_release(vllm_version: str) -> None:
    """Tell on stderr that the rules of an older release apply, if they do."""
    newer = newer_than_known(vllm_version)
    if newer is not None:
        print(f"headcount: warning: --vllm-version {newer}", file=sys.stderr)
