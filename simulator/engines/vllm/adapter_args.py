"""vLLM's arguments of LoRA adapters, and how many of them the requests use."""

from dataclasses import dataclass, replace
from typing import Any, Final, Self

from files.errors import HeadcountError
from files.names import check_names
from kvcache.memory.adapters import check_release
from simulator.engines.argument import MEMORY, SCHEDULER, STEP_TIME, SimulatedArgs, argument
from simulator.engines.values import COUNT, Number, Switch, Text, WholeNumber
from simulator.engines.vllm.adapters import MOST_ADAPTERS, Adapters

LORA_DTYPES: Final = ("auto", "float16", "bfloat16")
RANKS: Final = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # of vLLM 0.33 config/lora.py, MaxLoRARanks
MOST_SLOTS: Final = 32  # that a server is given by itself: each one slows steps down whether it is used or not
_GIVEN: Final = ("max_loras", "max_cpu_loras")  # to a server whose defaults are others


@dataclass(frozen=True, kw_only=True)
class AdapterArgs(SimulatedArgs):
    """None of them has an effect without `adapters`, and all of them ask for some."""

    adapters: int | None = argument(
        WholeNumber(1, most=MOST_ADAPTERS),
        "LoRA adapters that the requests use. Each conversation uses one of them.",
        decides=MEMORY,
        default_text="none",
        is_engine_s=False,
    )
    adapter_skew: float = argument(
        Number("a Zipf exponent, such as 1"),
        "Popularity of the adapters: the k-th has a share in proportion to 1 / k^skew. 0: all alike.",
        decides=SCHEDULER,
        default=1.0,
        is_engine_s=False,
    )
    max_loras: int = argument(
        COUNT,
        "Most LoRA adapters in a step, and slots for them on the GPU.",
        decides=MEMORY,
        default_of=lambda args, *_: default_slots(args),
        default_text=f"with --enable-lora 1, else --adapters, at most {MOST_SLOTS}",
    )
    max_lora_rank: int = argument(
        WholeNumber(1), "Highest rank of a LoRA adapter. Each slot has room for it.", decides=MEMORY, default=16
    )
    max_cpu_loras: int = argument(
        COUNT,
        "LoRA adapters in CPU memory, those on the GPU among them. Others are read from disk.",
        decides=SCHEDULER,
        default_of=lambda args, *_: default_in_memory(args),
        default_text="with --enable-lora --max-loras, else --adapters",
    )
    enable_lora: bool = argument(
        Switch(),
        "Serve LoRA adapters. Needs --adapters.",
        decides=MEMORY,
        default_of=lambda args, *_: args.adapters is not None,
        default_text="with --adapters",
    )
    lora_dtype: str = argument(Text(), "Data type of LoRA adapters: auto, float16, …", decides=MEMORY, default="auto")
    fully_sharded_loras: bool = argument(
        Switch(), "Split both matrices of LoRA adapters over the tensor-parallel ranks.", decides=MEMORY, default=False
    )
    specialize_active_lora: bool = argument(
        Switch(),
        "CUDA graphs by the number of adapters in the step, so that free slots take no time.",
        decides=STEP_TIME,
        default=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_names([self.lora_dtype], LORA_DTYPES, "lora_dtype")
        if self.max_lora_rank not in RANKS:
            raise HeadcountError(
                f"max_lora_rank is {self.max_lora_rank}; vLLM takes {', '.join(map(str, RANKS[:-1]))} or {RANKS[-1]}"
            )
        if self.adapters is None:
            self._check_unused()

    def _check_unused(self) -> None:
        """Raise HeadcountError for arguments of adapters where no request has one."""
        given = [name for name in ("max_loras", "max_cpu_loras") if getattr(self, name) is not None]
        switches = ("enable_lora", "fully_sharded_loras", "specialize_active_lora")
        given += [name for name in switches if getattr(self, name)]
        given += [name for name in ("adapter_skew", "max_lora_rank") if getattr(self, name) != _NO_ADAPTERS[name]]
        if given:
            flag = f"--{given[0].replace('_', '-')}"
            raise HeadcountError(f"{flag} needs --adapters: how many LoRA adapters the requests use; give both or none")

    def without_adapters(self) -> Self:
        """The same server for requests to the model alone."""
        return replace(self, **_NO_ADAPTERS)

    @property
    def lora(self) -> Self | None:
        """What memory and step times need to know of adapters."""
        return self if self.adapters is not None else None


_NO_ADAPTERS: Final[dict[str, Any]] = {
    "adapters": None, "adapter_skew": 1.0, "max_loras": None, "max_lora_rank": 16, "max_cpu_loras": None,
    "enable_lora": None, "lora_dtype": "auto", "fully_sharded_loras": False, "specialize_active_lora": False,
}  # fmt: skip


def adapters_of_args(args: AdapterArgs, vllm_version: str) -> Adapters | None:
    """How a scheduler deals with them. Raises HeadcountError for another release's rules."""
    if args.adapters is None:
        return None
    check_release(vllm_version)
    if args.enable_lora is False:
        raise HeadcountError("--no-enable-lora serves no adapters; leave it or --adapters out")
    return Adapters(
        num_adapters=args.adapters,
        skew=args.adapter_skew,
        max_loras=args.max_loras,
        max_cpu_loras=args.max_cpu_loras,
    )


def lora_words(given: SimulatedArgs, filled: SimulatedArgs) -> list[str]:
    """What a server needs beside the words for what was `given`; the user puts in the adapters' names and paths."""
    if not isinstance(given, AdapterArgs) or not isinstance(filled, AdapterArgs) or filled.adapters is None:
        return []
    words = [] if given.enable_lora else ["--enable-lora"]
    for name in _GIVEN:
        value = getattr(filled, name)
        if getattr(given, name) is None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    return [*words, "--lora-modules", "NAME=PATH", "..."]


def default_slots(args: AdapterArgs) -> int | None:
    """vLLM's own where its flags are given, else as many as there are adapters."""
    if args.adapters is None:
        return None
    return 1 if args.enable_lora else min(args.adapters, MOST_SLOTS)


def default_in_memory(args: AdapterArgs) -> int | None:
    """The same of CPU memory: vLLM's own is no more than on the GPU."""
    if args.adapters is None:
        return None
    return args.max_loras if args.enable_lora else max(args.max_loras, args.adapters)
