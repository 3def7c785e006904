"""Which prefill and decode pools are asked for, and the link between them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from files.errors import HeadcountError
from files.names import check_names
from headcount.inputs.fields import Inputs, given
from headcount.inputs.reading.deployments import ModelOnGPU
from kvcache.memory.kv_store import NIC_BYTES_PER_S, REACHED_SHARE
from simulator.disaggregation import (
    CONNECTORS,
    DISPATCH_S,
    NOT_WITH_SGLANG,
    PULL,
    PUSH,
    DisaggregatedDeployment,
    PoolLink,
    resolve_disaggregated,
)
from simulator.engines.values import Duration, Number, Switch, Text
from simulator.engines.vllm.arguments import EngineArgs
from simulator.fleet.deciders import Decider, read_decider
from simulator.fleet.pool_sizes import DECODE, PREFILL, TOGETHER, ComparedPools, Part, PoolChoices, PoolSizes

if TYPE_CHECKING:
    from simulator.study.fleets.layouts import DisaggregationSearch

DisaggregatedPools = Mapping[str, Part | str] | str
NO_DECIDER = "none"
PoolSizesAsked = Mapping[str, Sequence[int]] | str


_HEADING: Final = "Disaggregated prefill/decode"


def _kv_transfer(*, is_many: bool = False) -> Any:
    help = (
        "How KV moves. pull: decode engines read it (vLLM's NixlConnector). push: prefill engines write it "
        "(NixlPushConnector)."
    )
    return given(Text(), help, default_text="pull", is_many=is_many)


def _kv_transfer_rate() -> Any:
    return given(Number("GB/s"), "KV-transfer rate between engines, per GPU, one way.", default_text="35.5")


def _dispatch() -> Any:
    help = "Time from the end of a prefill until its decode engine receives the request."
    return given(Duration(), help, default_text="25ms", flag="dispatch")


def _forward_token_ids() -> Any:
    help = (
        "The proxy hands each prompt's token ids from its prefill engine to its decode engine, which then does not "
        "tokenize it again (kv_transfer_params.prompt_token_ids)."
    )
    return given(Switch(has_opposite=False), help, default=False)


def _decider(*, is_many: bool = False) -> Any:
    help = (
        "Policy that lets decode engines compute prompts themselves. llm-d: "
        "prefix-based-pd-decider:nonCachedTokens=512. Dynamo: isl_bounding, prefill_load, isl_or_load."
    )
    return given(Text(), help, default_text="none", is_many=is_many)


@dataclass(frozen=True, kw_only=True)
class LinkInput(Inputs, heading="Disaggregated prefill/decode"):
    """What lies between prefill and decode engines."""

    kv_transfer: str | None = _kv_transfer()
    kv_transfer_rate: float | None = _kv_transfer_rate()
    dispatch_s: float | None = _dispatch()
    forward_token_ids: bool = _forward_token_ids()
    decider: str | None = _decider()

    def between(self) -> PoolLink:
        """As pools need it. Raises HeadcountError for what cannot be."""
        found = _between(self.kv_transfer_rate, self.dispatch_s, self.decider, self.kv_transfer)
        return _forwarding(found, self.forward_token_ids)

    def check_alone(self, pools: str = "prefill=N,decode=N") -> None:
        """Raise HeadcountError for what is given where there are no two pools."""
        others = self.kv_transfer, self.decider
        check_alone(self.kv_transfer_rate, self.dispatch_s, *others, forwards=self.forward_token_ids, pools=pools)


def pools_field() -> Any:
    """Sizes of both pools, as a field."""
    return given(
        PoolSizes(),
        "Prefill engines and decode engines: prefill=2,decode=6. With GPUs for each: prefill=2xtp1,decode=2xtp4.",
        heading=_HEADING,
    )


@dataclass(frozen=True, kw_only=True)
class PoolsInput(Inputs):
    """Engines that compute prompts and engines that compute answers."""

    pools: DisaggregatedPools | None = pools_field()


@dataclass(frozen=True, kw_only=True)
class ComparedPoolsInput(Inputs, heading="Disaggregated prefill/decode"):
    """Pools that are compared, each with what lies between them."""

    pools: str | Sequence[str] | None = given(
        ComparedPools(), "prefill=1,decode=3, or together for --gpus that do both. May be repeated.", is_many=True
    )
    kv_transfer: str | Sequence[str] | None = _kv_transfer(is_many=True)
    kv_transfer_rate: float | None = _kv_transfer_rate()
    dispatch_s: float | None = _dispatch()
    forward_token_ids: bool = _forward_token_ids()
    decider: str | Sequence[str] | None = _decider(is_many=True)

    def axes(self) -> dict[str, str | Sequence[str] | None]:
        """What may be a list, by name; an empty list is none."""
        found = {"pools": self.pools, "decider": self.decider, "kv_transfer": self.kv_transfer}
        return {name: None if value == () else value for name, value in found.items()}

    def between(self, gpus: int | Sequence[int]) -> PoolLink:
        """What lies between pools that are compared. Raises HeadcountError for what cannot be."""
        from headcount.inputs.reading.variations import values_of  # noqa: PLC0415  what comparisons alone need

        pools, deciders, transfers = (
            () if value is None else values_of(name, value) for name, value in self.axes().items()
        )
        for each in pools:
            ComparedPools().read(each)
        for decider in deciders:
            _read_decider(decider)
        rate, dispatch_s = self.kv_transfer_rate, self.dispatch_s
        if not any(each != TOGETHER for each in pools):
            others = (each for each in deciders if each)
            check_alone(rate, dispatch_s, next(iter(transfers), None), *others, forwards=self.forward_token_ids)
        elif TOGETHER in pools and any(deciders):
            raise HeadcountError(f"--pools {TOGETHER} has no decider; leave --decider or {TOGETHER} out")
        elif TOGETHER in pools and len(transfers) > 1:
            raise HeadcountError(f"--pools {TOGETHER} moves no KV; give one --kv-transfer, or leave {TOGETHER} out")
        elif not isinstance(gpus, int) and len(gpus) > 1:
            raise HeadcountError(
                "--gpus is a list, and --pools says how many engines there are; give one number of --gpus"
            )
        check_names([each for each in transfers if each is not None], CONNECTORS, "KV transfer")
        found = _between(rate, dispatch_s, kv_transfer=PUSH if {*transfers} == {PUSH} else PULL)
        if self.forward_token_ids and PUSH in transfers:
            _forwarding(replace(found, kv_transfer=PUSH), True)  # raises
        return _forwarding(found, self.forward_token_ids)


def asked_disaggregated(
    asked: ModelOnGPU, pools: DisaggregatedPools | None, link: LinkInput, *, replicas: int = 1
) -> DisaggregatedDeployment | None:
    """Both deployments, or None where every engine does both.

    Raises HeadcountError for another engine than vLLM, or for what cannot be.
    """
    if pools is None:
        link.check_alone()
        return None
    if replicas != 1:
        raise HeadcountError("--replicas and --pools both say how many engines there are; leave out one or the other")
    args = _vllm_args(asked)
    found, between = PoolSizes().read(pools), link.between()
    return resolve_disaggregated(asked.architecture, asked.gpu, args, (found[PREFILL], found[DECODE]), between)


def _vllm_args(asked: ModelOnGPU) -> EngineArgs:
    if not isinstance(asked.args, EngineArgs):
        raise HeadcountError(NOT_WITH_SGLANG)
    return asked.args


def asked_choices(pools: PoolSizesAsked | None, link: LinkInput) -> "DisaggregationSearch | None":
    """Of which sizes pools may be, or None where every server does both. Raises HeadcountError for what cannot be."""
    if pools is None:
        link.check_alone("prefill,decode")
        return None
    from simulator.study.fleets.layouts import DisaggregationSearch  # noqa: PLC0415  what a search alone needs

    sizes = {role: found for role, found in PoolChoices().read(pools).items() if found}
    return DisaggregationSearch(sizes=sizes, between=link.between())


def compared_pools(
    asked: ModelOnGPU, pools: str | None, decider: str | None, kv_transfer: str | None, between: PoolLink
) -> DisaggregatedDeployment | None:
    """Both deployments of one of several `pools` that are compared, or None for TOGETHER."""
    if pools in (None, TOGETHER):
        return None
    found, between = PoolSizes().read(pools), replace(between, decider=_read_decider(decider))
    if kv_transfer == PUSH:
        between = replace(between, kv_transfer=PUSH, dispatch_s=0.0)
    return resolve_disaggregated(
        asked.architecture, asked.gpu, _vllm_args(asked), (found[PREFILL], found[DECODE]), between
    )


def check_alone(
    kv_transfer_rate: float | None,
    dispatch_s: float | None,
    kv_transfer: str | None,
    *deciders: str | None,
    forwards: bool = False,
    pools: str = "prefill=N,decode=N",
) -> None:
    """Raise HeadcountError for what lies between two pools, where there are none."""
    given = {
        "--kv-transfer": kv_transfer, "--kv-transfer-rate": kv_transfer_rate, "--dispatch": dispatch_s,
        "--decider": next((each for each in deciders if each is not None), None),
        "--forward-token-ids": forwards or None,
    }  # fmt: skip
    for name, value in given.items():
        if value is not None:
            raise HeadcountError(f"{name} needs two pools; give --pools {pools} with it")


def _forwarding(between: PoolLink, is_asked: bool) -> PoolLink:
    """The same with token ids forwarded if that is asked for. Raises HeadcountError where nobody could do it."""
    if is_asked and between.pushes:
        raise HeadcountError(
            "--forward-token-ids: with --kv-transfer push a request goes to both its engines at once, before it is "
            "tokenized; leave it out"
        )
    return replace(between, forwards_token_ids=is_asked)


def _read_decider(given: str | None) -> Decider | None:
    return None if given in (None, NO_DECIDER) else read_decider(given)


def _between(
    kv_transfer_rate: float | None, dispatch_s: float | None, decider: str | None = None, kv_transfer: str | None = None
) -> PoolLink:
    kv_transfer = PULL if kv_transfer is None else kv_transfer
    check_names([kv_transfer], CONNECTORS, "KV transfer")
    if kv_transfer == PUSH and dispatch_s is not None:
        raise HeadcountError(
            "--dispatch: with --kv-transfer push a request goes to both its engines at once; leave it out"
        )
    if kv_transfer_rate is not None and not 0 < kv_transfer_rate < math.inf:
        raise HeadcountError(f"--kv-transfer-rate is {kv_transfer_rate:g} GB/s; it must be above 0")
    rate = REACHED_SHARE * NIC_BYTES_PER_S if kv_transfer_rate is None else 1e9 * kv_transfer_rate
    return PoolLink(
        bytes_per_s=rate,
        kv_transfer=kv_transfer,
        dispatch_s=0.0 if kv_transfer == PUSH else DISPATCH_S if dispatch_s is None else dispatch_s,
        decider=_read_decider(decider),
    )
