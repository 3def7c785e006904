"""Attention data parallelism as SGLang has it: in old flags, and in what a server logs of its resolved arguments.

Read from SGLang 0.5.23: `srt/arg_groups/parallel_hook.py`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from files.documents import Json
from files.errors import HeadcountError
from simulator.engines.sglang.defaults import NO_EXCHANGE

if TYPE_CHECKING:
    from simulator.engines.sglang.arguments import SGLangArgs

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


def check_ranks(args: "SGLangArgs") -> None:
    """Raise HeadcountError for groups of GPUs that SGLang refuses, or that are not simulated."""
    groups, tp = args.attn_dp_size, args.tensor_parallel_size
    if groups > 1 and args.dp_size > 1:
        raise HeadcountError(
            f"attn_dp_size {groups} and dp_size {args.dp_size} are not combined by SGLang; start several servers"
        )
    if tp is None:
        return
    if tp % groups:
        raise HeadcountError(f"attn_dp_size is {groups}; it must divide tp-size ({tp}), which counts all GPUs")
    if args.moe_a2a_backend != NO_EXCHANGE and groups == 1:
        raise HeadcountError(
            f"moe_a2a_backend {args.moe_a2a_backend!r} is simulated with attention groups; give --attn-dp-size, or "
            "leave it out"
        )
    if args.moe_dense_tp_size not in (None, 1, tp):
        raise HeadcountError(f"moe_dense_tp_size is {args.moe_dense_tp_size}; SGLang takes 1 or tp-size ({tp})")
    if args.moe_dense_tp_size == 1 and tp not in (1, groups):
        raise HeadcountError(
            f"moe_dense_tp_size 1 is simulated where each GPU is an attention group; give --attn-dp-size {tp}, or "
            "leave it out"
        )
    if args.ep_size not in (1, tp):
        raise HeadcountError(f"ep_size is {args.ep_size}; 1 and all of tp-size ({tp}) are simulated")
