"""Attention data parallelism as SGLang has it: in old flags, and in what a server logs of its resolved arguments.

Read from SGLang 0.5.23: `srt/arg_groups/parallel_hook.py`.
"""

from collections.abc import Mapping
from typing import Any, Final

from files.documents import Json

LESS_CAREFUL: Final = 0.3  # times the schedule_conservativeness that is given
OLD_GROUPS: Final = "enable_dp_attention"  # makes --dp-size what --attn-dp-size is today


def in_groups(given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name where the old flag stands beside them: their `dp_size` counts attention groups."""
    found = dict(given)
    if found.get("attn_dp_size", 1) == 1:
        found["attn_dp_size"] = found.pop("dp_size", 1)
    return found


def as_given(resolved: Mapping[str, Any]) -> Json:
    """What a server was given, of the arguments that it logs: those that it has changed for its groups changed back."""
    found = dict(resolved)
    if found.pop(OLD_GROUPS, False):
        found = in_groups(found)
    groups = found.get("attn_dp_size", 1)
    if groups == 1:
        return found
    chunk = found.get("chunked_prefill_size", -1)
    found |= {"chunked_prefill_size": chunk * groups} if chunk > 0 else {}
    if "schedule_conservativeness" in found:
        found["schedule_conservativeness"] = round(found["schedule_conservativeness"] / LESS_CAREFUL, 6)
    return found
