"""What a server logged when it started: its arguments, its memory, its KV cache; of vLLM, or of SGLang."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrate.readers.parsing.engine_options import OPTIONS
from calibrate.readers.parsing.log_text import log_pattern, log_text
from calibrate.readers.parsing.logged_arguments import READ, read_logged_arguments
from calibrate.readers.parsing.sglang_log import is_sglang_log, read_arguments, read_memory, read_pool
from files.documents import Json
from files.errors import HeadcountError
from files.names import shortened
from files.schema import AtLeastOne, typed
from kvcache.layout.kv_layout import KVLayout
from kvcache.releases import LOGS_TOKENS_OF_WHOLE_REQUESTS
from simulator.engines.engines import SGLANG, VLLM
from simulator.engines.flags import WITHOUT_EFFECT, find_group, flag_groups

GIB = 2**30
_NUMBER = r"([0-9][0-9,]{0,24}(?:\.[0-9]{0,9})?)"
_LENGTH = "([1-9][0-9,]{0,24})"
_VERSION, _POOL, _CONCURRENCY = "vLLM's version", "'GPU KV cache size'", "'Maximum concurrency for'"
_NEEDED = {  # patterns of `log_pattern`
    _VERSION: (
        r"(?:vLLM API server version|LLM engine \(v|▀ version) ([0-9]{1,4}\.[0-9]{1,4}(?:\.[0-9]{1,4})?)(?![0-9])"
    ),
    _POOL: rf"(?:GPU|CPU) KV cache size: {_NUMBER} tokens",
    _CONCURRENCY: rf"Maximum concurrency for {_LENGTH} tokens per request: {_NUMBER}x",
}
_MEMORY: dict[str, tuple[re.Pattern[str], Callable[[Iterable[float]], float]]] = {
    # Each rank logs its own; the fullest one decides.
    "weights": (log_pattern(rf"Model loading took {_NUMBER} GiB"), max),
    "activation_peak": (log_pattern(rf"torch peak memory increase: {_NUMBER} GiB"), max),
    "non_torch": (log_pattern(rf"non-torch forward increase memory: {_NUMBER} GiB"), max),
    "cuda_graph": (log_pattern(rf"Graph capturing finished in [0-9]{{1,9}} secs, took {_NUMBER} GiB"), max),
    "available_kv": (log_pattern(rf"Available KV cache memory: {_NUMBER} GiB"), min),
}

_WITHOUT_EFFECT = [group for group in flag_groups(VLLM) if group.effect == WITHOUT_EFFECT]


@dataclass(frozen=True, kw_only=True)
class StartupLog:
    """What it says of its engine."""

    path: Path
    vllm_version: str
    arguments: Json  # those that are not vLLM's defaults; of an option's type where they are one
    kv_cache_tokens: int
    max_model_len: int
    max_concurrency: float
    memory_gib: Mapping[str, float]  # of each GPU by kind, as far as it is logged, to two digits
    missing: tuple[str, ...] = ()  # what it does not hold, where defaults are taken instead
    contradictions: tuple[str, ...] = ()  # where it says two things
    engine: str = VLLM
    is_size_known: bool = True  # else its tensor parallel size may be larger than its lines show

    @property
    def options(self) -> dict[str, object]:
        """The server's settings as options here: its arguments, its model, its release."""
        if self.engine == SGLANG:
            sizes = {"max_total_num_tokens": self.kv_cache_tokens, "context_length": self.max_model_len}
            return {"tensor_parallel_size": 1} | self.arguments | sizes | {"engine": SGLANG}
        found = {name: self.arguments[name] for name in OPTIONS if self.arguments.get(name) is not None}
        model = self.arguments.get("model") or self.arguments.get("model_tag")
        if model is not None:
            found["model"] = model
        return found | {
            "max_model_len": self.max_model_len,
            "vllm_version": self.vllm_version,
            "tensor_parallel_size": self.tensor_parallel_size,
        }

    @property
    def unused(self) -> tuple[str, ...]:
        """Arguments that may change an answer, and are not looked at; SGLang logs all that it has."""
        if self.engine == SGLANG:
            return ()
        given = (name for name, value in self.arguments.items() if value is not None and name not in READ)
        groups = {name: find_group(VLLM, name.replace("_", "-")) for name in given}
        return tuple(sorted(shortened(name) for name, group in groups.items() if group not in _WITHOUT_EFFECT))

    @property
    def tensor_parallel_size(self) -> int:
        return int(self.arguments.get("tensor_parallel_size") or 1)

    def may_be_of_size(self, tensor_parallel_size: int) -> bool:
        """Whether a server with that tensor parallel size may have written it."""
        known = self.tensor_parallel_size
        return tensor_parallel_size == known or (not self.is_size_known and tensor_parallel_size > known)

    def num_gpu_blocks(self, layout: KVLayout) -> int:
        """The pool's blocks: exact where all layers attend to everything; in older releases to a block for each group
        of layers, later from the bytes, to 0.02 %.

        Raises HeadcountError where the log does not say enough.
        """
        num_groups = len(layout.groups)
        if not LOGS_TOKENS_OF_WHOLE_REQUESTS.holds_in(self.vllm_version):
            return self.kv_cache_tokens // layout.block_size * num_groups
        if num_groups == 1 and layout.groups[0].window is None:
            per_request = layout.groups[0].blocks_per_request(self.max_model_len, 0, layout.block_size)
            return round(self.kv_cache_tokens * per_request / self.max_model_len)
        if "available_kv" not in self.memory_gib:
            raise HeadcountError(
                f"{self.path}: 'Available KV cache memory' is missing, and a hybrid model's blocks do not follow from "
                "the rest; give --num-gpu-blocks-override"
            )
        return int(self.memory_gib["available_kv"] * GIB) // layout.block_bytes()


def read_startup_log(
    path: str | Path, *, vllm_version: str | None = None, max_model_len: int | None = None
) -> StartupLog:
    """What a server logged at its start; the release and the length stand in for lines that it lacks.

    Raises HeadcountError where the file cannot be read, or is no log of a server that came up.
    """
    path = Path(path)
    text = log_text(path)
    if is_sglang_log(text):
        return _log_of_sglang(path, text)
    said = {what: found for what, pattern in _NEEDED.items() if (found := log_pattern(pattern).search(text))}
    given = {_VERSION: vllm_version, _CONCURRENCY: max_model_len}
    if missing := [what for what in _NEEDED if what not in said and given.get(what) is None]:
        raise _incomplete(path, missing)
    version = said[_VERSION][1] if _VERSION in said else str(vllm_version)
    tokens = typed(int(_number(said[_POOL][1])), AtLeastOne, path, name="GPU KV cache size")
    concurrency = said.get(_CONCURRENCY)
    length = int(_number(concurrency[1])) if concurrency is not None else int(max_model_len or 0)
    memory = {
        name: choose(map(_number, logged))
        for name, (pattern, choose) in _MEMORY.items()
        if (logged := pattern.findall(text))
    }
    arguments = read_logged_arguments(path, text)
    return StartupLog(
        path=path,
        vllm_version=version if version.count(".") == 2 else f"{version}.0",
        arguments=dict(arguments.values),
        kv_cache_tokens=tokens,
        max_model_len=length,
        max_concurrency=tokens / length if concurrency is None else _number(concurrency[2]),
        memory_gib=memory,
        missing=arguments.missing,
        is_size_known=arguments.is_size_known,
        contradictions=arguments.contradictions,
    )


def _incomplete(path: Path, missing: Sequence[str]) -> HeadcountError:
    """Names the options that give what the log lacks."""
    options = {_VERSION: "--vllm-version", _CONCURRENCY: "--max-model-len"}
    do = f"give {' and '.join(options[what] for what in missing if what in options)}"
    if _POOL in missing:
        do = "leave it out and give --num-gpu-blocks-override"
    return HeadcountError(
        f"{path}: {', '.join(missing)} is missing; give the log of a server's start up to its first request, or {do}"
    )


def _log_of_sglang(path: Path, text: str) -> StartupLog:
    (tokens, context_length), arguments = read_pool(path, text), read_arguments(path, text)
    return StartupLog(
        path=path,
        vllm_version="",
        arguments=arguments,
        kv_cache_tokens=tokens,
        max_model_len=context_length,
        max_concurrency=tokens / context_length,
        memory_gib=read_memory(text),
        engine=SGLANG,
        is_size_known="tensor_parallel_size" in arguments,
    )


def logged_options(path: Path) -> dict[str, object]:
    """The server's settings as options here, where the log holds its start; else none."""
    try:
        return read_startup_log(path).options
    except ValueError:
        return {}


def _number(text: str) -> float:
    return float(text.replace(",", ""))
