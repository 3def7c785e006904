"""What is said of a vLLM release that is not known yet."""

import sys


def warn_newer_release(vllm_version: str) -> None:
    """Tell on stderr that the rules of an older release apply, if they do."""
    from kvcache.memory.terms import parse_version  # noqa: PLC0415  with the next, imported once a command runs
    from kvcache.releases import newer_than_known  # noqa: PLC0415

    newer = newer_than_known(parse_version(vllm_version))
    if newer is not None:
        print(f"headcount: warning: --vllm-version {newer}", file=sys.stderr)
