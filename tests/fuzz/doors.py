"""Every way in: a file or an option that is right, and the command that takes it."""

import gzip
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from simulator.latency.profile_file import profile_text
from tests.calibrate.readers.one_run import RUN
from tests.calibrate.readers.result_writers import ALL
from tests.calibrate.readers.test_reader_of_iterations import STARTED, line
from tests.calibrate.readers.test_reader_of_metrics import snapshot
from tests.calibrate.readers.test_startup_log import ARGUMENTS, log_text
from tests.fuzz.mutations import NASTY, mutated
from tests.headcount.inputs.test_bad_model_config import LLAMA
from tests.simulator.latency.test_profile import PROFILE
from tests.workloads.formats.example_traces import EXAMPLES

FILE, FOLDER, OUT = "<FILE>", "<FOLDER>", "<OUT>"
ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "calibrate" / "recordings" / "cpu-small"
ON = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
TIMED = ("--latency-model", "constant", "--step-s", "0.01")
CLOSED = ("--concurrency", "2", "--input-len", "40", "--output-len", "4", "--num-requests", "6")
SERVE = ("simulate", *ON, *TIMED)
STARTED_SERVER = log_text(arguments=ARGUMENTS)

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02}.6805900,{100 + 7 * second},{1 + second}\n" for second in range(9)
)
AZURE_COLUMNS = "time=TIMESTAMP,prompt=ContextTokens,output=GeneratedTokens,priority=GeneratedTokens"
MOONCAKE = "".join(
    json.dumps({
        "timestamp": 900 * k, "input_length": 1100 + k, "output_length": 3 + k, "hash_ids": [0, k, k + 9],
        "session_id": f"s{k % 3}", **({"delay": 400} if k > 3 else {}),
    }) + "\n"
    for k in range(9)
)  # fmt: skip
CONFIG_YAML = """\
# a load
model: llama-3.1-8b
gpu: h100-sxm
latency-model: constant
step-s: 0.01
max_model_len: 8K
enable-prefix-caching: true
concurrency: 2
input-len: 40
output-len: 4
num-requests: 6
speculative-config: '{"method": "ngram", "num_speculative_tokens": 3, "acceptance_rate": 0.6}'
"""
CONFIG_TOML = """\
model = "qwen3-30b-a3b"
gpu = "h100-sxm"
tensor-parallel-size = 2
kv-cache-dtype = "fp8"
gpu-memory-utilization = 0.9
"""
MIXTURE = LLAMA | {
    "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": 4096,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192},
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": ["gate"]},
}  # fmt: skip
SOURCED = {"name": "me/mine", "source": "a repository", "config": LLAMA}
GPU = """\
memory_bytes = 24146608128
memory_bandwidth_bytes_per_s = 3e11
flops_per_s = { bf16 = 1.2e14, fp8 = 2.4e14 }
interconnect = "pcie"
interconnect_bytes_per_s = 3.2e10
family = "ada"
usd_per_hour = 0.44
aliases = ["mine-24gb"]

[source]
memory_bytes = "a log"
memory_bandwidth_bytes_per_s = "a data sheet"
flops_per_s = "a data sheet"
interconnect_bytes_per_s = "a data sheet"
usd_per_hour = "a list"
"""


@dataclass(frozen=True)
class Door:
    """`content` is right as it stands; `command` takes a file of it where FILE stands, or the folder that holds it.

    Where neither stands in it, HEADCOUNT_PATH names the folder. `beside` is copied there first. What a command writes
    goes to OUT.
    """

    name: str
    file: str
    content: bytes
    command: tuple[object, ...]
    beside: Path | None = None

    @property
    def searched(self) -> bool:
        return not any(place in str(word) for word in self.command for place in (FILE, FOLDER))

    def arguments(self, path: Path, out: Path) -> tuple[str, ...]:
        words = (str(word).replace(FILE, str(path)).replace(FOLDER, str(path.parent)) for word in self.command)
        return tuple(word.replace(OUT, str(out)) for word in words)


def file_doors(folder: Path) -> Iterator[Door]:
    """Every kind of file that is read; `folder` takes what is written on the way."""
    chat = (ROOT / "workloads" / "presets" / "chat.toml").read_bytes()
    fp8 = (ROOT / "kvcache" / "formats" / "weights" / "fp8.toml").read_bytes()
    llama, mixture, sourced = (
        json.dumps(config, indent=1).encode()
        for config in (LLAMA, MIXTURE, {"name": "me/mine", "source": "a repository", "config": LLAMA})
    )
    iterations = STARTED + "".join(line(k, (1, 100, 2, 2, 5.0)) for k in range(8))
    memory, read, users = ("memory", "--gpu", "h100-sxm"), ("calibrate", "read"), ("--users", 3)

    yield Door("population", "p.toml", chat, (*SERVE, *users, "--workload", FILE))
    yield Door("Azure trace", "t.csv", AZURE.encode(), (*SERVE, "--workload", FILE))
    yield Door("first rows of a trace", "t.csv", AZURE.encode(), (*SERVE, "--num-requests", 3, "--workload", FILE))
    yield Door("Mooncake trace", "t.jsonl", MOONCAKE.encode(), (*SERVE, "--workload", FILE))
    for name, example in EXAMPLES.items():
        yield Door(f"{name} trace", "t.dat", example.text.encode(), (*SERVE, "--workload", FILE))
    yield Door("named columns", "t.csv", AZURE.encode(), (*SERVE, "--workload", FILE, "--columns", AZURE_COLUMNS))
    yield Door("YAML options", "c.yaml", CONFIG_YAML.encode(), ("simulate", "--config", FILE))
    yield Door("TOML options", "c.toml", CONFIG_TOML.encode(), ("memory", "--config", FILE))
    yield Door("model", "config.json", llama, (*memory, "--model", FILE))
    yield Door("model with experts", "config.json", mixture, ("memory", "--gpu", "l40s", "-tp", 2, "--model", FILE))
    yield Door("model in training", "config.json", llama, ("training-memory", "--gpu", "h100-sxm", "--model", FILE))
    yield Door("served model", "config.json", mixture, ("simulate", "--gpu", "h100-sxm", *CLOSED, "--model", FILE))
    yield Door("start-up log", "s.log", STARTED_SERVER.encode(), (*memory, "--startup-log", FILE))
    yield Door("start-up log, read", "s.log", STARTED_SERVER.encode(), (*read, FILE))
    yield Door("iterations", "s.log", iterations.encode(), (*read, FILE))
    yield Door("metrics", "m.prom", snapshot([0.1, 0.5]).encode(), (*read, "--json", FILE))
    yield Door(
        "profile", "p.toml", profile_text(PROFILE).encode(), ("simulate", *ON, *CLOSED, "--latency-profile", FILE)
    )
    for name, how in ALL.items():
        content = how.write(folder / how.name, RUN).read_bytes()
        content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        yield Door(f"result of {name}", how.name.removesuffix(".gz"), content, (*read, "--json", FILE))

    own_gpu = ("memory", "--model", "llama-3.1-8b", "--gpu", "mine", "--max-model-len", "8K")
    yield Door("GPU of the user's", "gpus/mine.toml", GPU.encode(), own_gpu)
    yield Door("format of the user's", "weight_formats/mine.toml", fp8, ("memory", *ON, "-q", "mine"))
    yield Door("model of the user's", "models/mine.json", sourced, (*memory, "--model", "mine"))
    yield Door("preset of the user's", "presets/mine.toml", chat, (*SERVE, *users, "--workload", "mine"))


PASTED = "VLLM_USE_V1=1 vllm serve llama-3.1-8b -tp 2 --max-num-seqs 64 --enable-prefix-caching"
EAGLE = '{"method": "eagle", "num_speculative_tokens": 3, "acceptance_rate": 0.6, "model": "x"}'


def slow_doors(doors: Iterable[Door]) -> Iterator[Door]:
    """Those whose commands take seconds."""
    result = next(door for door in doors if door.name == "result of vllm")
    yield replace(result, name="checked result", command=("calibrate", "check", *ON, *TIMED, FILE))
    fit = ("calibrate", "fit", "--force", *ON, "--out", OUT, FOLDER)  # a CPU's steps are no H100's
    recording, steps = RECORDING / "recording.json", RECORDING / "steps" / "010-decode-1792x8.csv"
    yield Door("recording", "recording.json", recording.read_bytes(), fit, beside=RECORDING)
    fit = (*fit[:-1], FOLDER + "/..")
    yield Door("steps of a recording", f"steps/{steps.name}", steps.read_bytes(), fit, beside=RECORDING)


SLOW_LINES = (
    ("calibrate", "record", "--model", "llama-3.1-8b", "--plan-only", "--max-num-seqs", "64", "--max-model-len", "4K"),
    ("capacity", *ON, *TIMED, "--gpus", "1,2", "--replications", "2", "--ttft", "1s", "--tpot", "50ms", "-tp", "1"),
)
LINES = (
    ("memory", *ON, "-tp", "2", "--max-model-len", "8K", "--gpu-memory-utilization", "0.9", "--kv-cache-dtype", "fp8"),
    ("memory", "--gpu", "h100-sxm", "--vllm-args", PASTED),
    (*SERVE, *CLOSED, "--speculative-config", EAGLE),
    (*SERVE, *CLOSED, "--max-num-seqs", "8", "--block-size", "16", "--router", "random", "--replicas", "2"),
    (*SERVE, "--input-len", "40", "--output-len", "4", "--rate", "3", "--burstiness", "0.7", "--num-requests", "6"),
    (*SERVE, *CLOSED, "--length-spread", "0.8", "--max-num-batched-tokens", "512"),
    (*SERVE, "--workload", "chat", "--users", "3", "--think-time", "2s", "--seed", "4"),
    ("training-memory", *ON, "--precision", "bf16-mixed", "--optimizer", "adamw", "--seq-len", "4K", "-dp", "8"),
)


def mutated_line(rng: random.Random, lines: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """A right command line with one or two values, or names, damaged."""
    words = list(rng.choice(lines))
    for _ in range(rng.choice((1, 1, 2))):
        place = rng.randrange(1, len(words))
        damaged = mutated(rng, words[place].encode()).decode("utf-8", errors="replace").replace("\0", "")
        words[place] = rng.choice((rng.choice(NASTY), damaged))[:100_000]
    return tuple(words)
