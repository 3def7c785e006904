"""The `config.json` that a real engine is given."""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from calibrate.record.loads import Limits
from calibrate.record.step_terms import TERMS, FloatArray
from files.documents import Json, ReadJson, read_json
from files.errors import HeadcountError
from kvcache.models.catalog import named_config
from kvcache.models.config.reader import from_config
from kvcache.parallelism import Parallelism
from kvcache.shape.parameters import active_parameters, stage_tensors
from simulator.engines.argument import Settings
from simulator.latency.forms.physical import window_class

TINY = "tiny"
# Made up: small enough for a few loads on one processor core to take a minute.
TINY_CONFIG: Json = read_json(Path(__file__).with_name("tiny.json"))
# Guesses that only order loads until the engine itself has been timed: seconds per step, then rates of one device.
_GUESS = {"cpu": (4e-3, 2e11, 1e10), "gpu": (3e-3, 3e14, 2e12)}  # base_s, flop/s, bytes/s


def record_config(model: str) -> dict[str, object]:
    """The config of a catalog model, of a `config.json` or its folder, or of the built-in `tiny` one.

    Raises HeadcountError where there is none.
    """
    return dict(TINY_CONFIG) if model == TINY else named_config(model)[1]


def model_folder(model: str) -> Path | None:
    """The folder with the model's own files, where one was given."""
    given = Path(model).expanduser()
    return given.resolve() if model != TINY and given.is_dir() else None


def write_config(folder: Path, config: Mapping[str, object]) -> None:
    """Put it where vLLM looks for it."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def attention_window(config: Mapping[str, object], groups: list[tuple[int | None, int]]) -> int | None:
    """Tokens that windowed layers attend to, their mean where they differ; None where no layer has a window.

    From the config as the simulator reads it; of a model that it does not know from vLLM's layer `groups`, each a
    window with its number of layers.
    """
    try:
        layers, window = window_class(from_config(config, name="recorded"))
        return window if layers else None
    except ValueError:
        windows = [window for window, layers in groups if window is not None for _ in range(layers)]
        return round(float(np.mean(windows))) if windows else None


def guessed_seconds(config: ReadJson, device: str, num_devices: int = 1) -> FloatArray:
    """Seconds per unit of each term before anything is timed, good to an order of magnitude."""
    base_s, flops, bytes_per_s = _GUESS["cpu" if device == "cpu" else "gpu"]
    flops, bytes_per_s = flops * num_devices, bytes_per_s * num_devices
    try:
        arch = from_config(config, name="recorded")
        parameters, head_dims = active_parameters(arch), 4.0 * arch.num_hidden_layers * arch.head_dim
        kv_bytes, pair_flop = head_dims * arch.num_key_value_heads, head_dims * arch.num_attention_heads
    except ValueError:
        parameters, kv_bytes, pair_flop = 10**10, 10**5, 10**6
    weights_s, token_s = 2 * parameters / bytes_per_s, 2 * parameters / flops
    seconds = {
        "constant": base_s + weights_s,
        "any_decode": base_s / 10,
        "tokens": token_s,
        "tokens_beyond_knee": token_s / 10,
        "sequences": 2e-5,
        "sampled": 2e-5,
        "decode_context": kv_bytes / bytes_per_s,
        "prefill_work": pair_flop / flops,
    }
    return np.array([seconds.get(name, 0.0) for name in TERMS])


def check_plannable(config: Mapping[str, object], engine: Settings) -> None:
    """Raises HeadcountError where vLLM would refuse these settings, as far as that is known without starting it."""
    length = engine.get("max_model_len")
    if length is not None and length < 2:
        raise HeadcountError(f"--max-model-len is {length}; a request needs 2 tokens, one of prompt and one of answer")
    seqs, tokens = engine.get("max_num_seqs"), engine.get("max_num_batched_tokens")
    if seqs is not None and tokens is not None and seqs > tokens:
        raise HeadcountError(
            f"--max-num-seqs is {seqs:,}, above --max-num-batched-tokens {tokens:,}; lower it or raise that"
        )
    try:
        arch = from_config(config, name="recorded")
    except ValueError:
        return  # a model that vLLM may know all the same
    names = ("tensor_parallel_size", "pipeline_parallel_size", "enable_expert_parallel")
    split = Parallelism(**{name: engine[name] for name in names if name in engine})
    for stage in range(split.pipeline_parallel_size):
        for _ in stage_tensors(arch, split, stage):
            pass


def assumed_limits(config: ReadJson, engine: Settings) -> Limits:
    """An engine's limits before it is started: as given, else vLLM's on a large GPU, with room for all sequences."""
    tokens = int(engine.get("max_num_batched_tokens") or 8192)
    max_model_len = int(engine.get("max_model_len") or config.get("max_position_embeddings") or 8192)
    blocks = engine.get("num_gpu_blocks_override")
    return Limits(
        max_num_seqs=int(engine.get("max_num_seqs") or min(256, tokens)),  # vLLM lowers its default alike
        max_num_batched_tokens=tokens,
        max_model_len=max_model_len,
        kv_tokens=int(blocks) * int(engine.get("block_size") or 16) if blocks else 4 * max_model_len,
        window=attention_window(config, []),
    )
