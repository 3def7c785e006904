"""How long a replica takes from the wish for it to its first request: a sum of stages, each of which can be given."""

from dataclasses import dataclass, fields
from typing import Final, Literal

from files.schema import NotNegative, Strict, typed
from kvcache.memory.terms import num_cuda_graph_sizes
from kvcache.shape.parameters import total_parameters
from simulator.deployment import Deployment
from simulator.engines.values import read_parameters

GPUS_PER_NODE: Final = 8
ICE: Final = (
    "fit over 11 models on A100, vLLM 0.10.1: Breaking the Ice (MLSys 2026), github.com/upb-cn/vllm-startup-profiler"
)


@dataclass(frozen=True, kw_only=True)
class Storage:
    """Where weights are read from."""

    bytes_per_s: float
    is_shared: bool  # by all GPUs of a replica; False: so much for each
    source: str


STORAGES: Final = {
    "local-disk": Storage(bytes_per_s=1.8e9, is_shared=False, source=f"{ICE}; default loader, files read before"),
    "nvme": Storage(
        bytes_per_s=2.3e9, is_shared=False, source="Llama-3.3-70B TP 2, 70.6 GB per worker in 30.2 s, one thread"
    ),
    "nfs": Storage(bytes_per_s=3.1e9, is_shared=False, source="Llama-3.3-70B TP 2, 70.6 GB per worker in 22.6 s"),
    "fastsafetensors": Storage(
        bytes_per_s=6.1e9, is_shared=False, source="Llama-3.3-70B TP 2, 70.6 GB per worker in 11.6 s, over NFS"
    ),
    "peer-gpu": Storage(
        bytes_per_s=26e9, is_shared=False, source="Llama-3.3-70B TP 2, 70.6 GB per worker in 2.7 s, over RDMA"
    ),
    "object-store": Storage(
        bytes_per_s=0.52e9, is_shared=True, source="Anyscale on EKS: 140 GB of a 70B model in 240 to 300 s"
    ),
}
StorageName = Literal["local-disk", "nvme", "nfs", "fastsafetensors", "peer-gpu", "object-store"]

NODE_S: Final = 75.0  # Anyscale on EKS: 60 to 90 s
IMAGE_S: Final = 69.0  # Qwen3-32B on GKE: an image of 8.9 GB, pulled without streaming
PROCESS_S: Final = 10.2  # ICE: imports, platform, worker; 9.6 to 10.6 s
INTERPRETER_S: Final = 7.5  # ICE: what the whole run takes beyond what vLLM's own log covers; 7.0 to 8.0 s
DYNAMO_S, DYNAMO_LAYER_S = 1.2, 0.22  # ICE
CACHED_GRAPH_S, CACHED_GRAPH_LAYER_S = 0.7, 0.21  # ICE: compiled code loaded from vLLM's cache
COMPILE_S, COMPILE_LAYER_S = 4.0, 0.97  # ICE: without that cache, 26 to 49 s with dynamo
PROFILE_S, PROFILE_BILLION_S = 1.6, 0.21  # ICE, ± 40 %; per billion parameters on a GPU
CAPTURE_S: Final = 0.66e-3  # ICE, ± 20 %; per layer and captured size
FIRST_CAPTURE_S: Final = 23.0  # ICE: the first run, whose kernels are in no cache; 19 to 27 s
PROBE_S: Final = 5.0  # half of Kubernetes' default period of readiness probes, 10 s


@dataclass(frozen=True, kw_only=True)
class Stages:
    """Seconds, one stage after the other."""

    node_s: float = 0.0
    """The machine is provisioned."""
    image_s: float = 0.0
    """Its container image is pulled."""
    process_s: float = 0.0
    """The process starts, with its imports and workers."""
    weights_s: float = 0.0
    """Weights are read."""
    compile_s: float = 0.0
    """torch.compile, or what it cached before."""
    profile_s: float = 0.0
    """Memory is profiled for the KV cache."""
    capture_s: float = 0.0
    """CUDA graphs are captured."""
    probe_s: float = 0.0
    """The first readiness probe comes."""

    @property
    def total_s(self) -> float:
        return float(sum(getattr(self, item.name) for item in fields(self)))

    def to_json(self) -> dict[str, float]:
        return {item.name: getattr(self, item.name) for item in fields(self)} | {"total_s": self.total_s}


class Startup(Strict, frozen=True, kw_only=True):
    """What is known of a start: where weights come from, and stages in seconds; None follows from the deployment.

    A given stage holds for every start, on a new node and on one that has started a replica before.
    """

    weights_from: StorageName = "object-store"
    node_s: NotNegative | None = None
    image_s: NotNegative | None = None
    process_s: NotNegative | None = None
    weights_s: NotNegative | None = None
    compile_s: NotNegative | None = None
    profile_s: NotNegative | None = None
    capture_s: NotNegative | None = None
    probe_s: NotNegative | None = None

    def stages(self, deployment: Deployment, *, is_new_node: bool) -> Stages:
        """Of a replica's start. A node that has started one keeps image, weights and compiled code."""
        budget, served = deployment.budget, deployment.architecture
        computed = stages_of(
            weights_bytes=budget.weights_bytes,
            gpus=deployment.gpus,
            billions=total_parameters(served) / deployment.gpus / 1e9,
            layers=served.num_hidden_layers,
            captured_sizes=num_cuda_graph_sizes(deployment.gpu, budget.max_num_seqs),
            storage=STORAGES[self.weights_from if is_new_node else "local-disk"],
            is_new_node=is_new_node,
            is_eager=deployment.args.enforce_eager,
        )
        given = {item.name: getattr(self, item.name) for item in fields(Stages)}
        return Stages(**{name: getattr(computed, name) if value is None else value for name, value in given.items()})


def stages_of(
    *,
    weights_bytes: float,
    gpus: int,
    billions: float,
    layers: int,
    captured_sizes: int,
    storage: Storage,
    is_new_node: bool,
    is_eager: bool = False,
) -> Stages:
    """The stages of vLLM's start; `weights_bytes` and `billions` of parameters are those of one GPU."""
    dynamo_s = DYNAMO_S + DYNAMO_LAYER_S * layers
    cached_s = CACHED_GRAPH_S + CACHED_GRAPH_LAYER_S * layers
    compiled_s = COMPILE_S + COMPILE_LAYER_S * layers
    graphs_s = CAPTURE_S * layers * captured_sizes
    return Stages(
        node_s=NODE_S if is_new_node else 0.0,
        image_s=IMAGE_S if is_new_node else 0.0,
        process_s=INTERPRETER_S + PROCESS_S,
        weights_s=weights_bytes * (gpus if storage.is_shared else 1) / storage.bytes_per_s,
        compile_s=0.0 if is_eager else dynamo_s + (compiled_s if is_new_node else cached_s),
        profile_s=PROFILE_S + PROFILE_BILLION_S * billions,
        capture_s=0.0 if is_eager else max(graphs_s, FIRST_CAPTURE_S * is_new_node),
        probe_s=PROBE_S,
    )


def read_startup(given: str | Startup | None) -> Startup:
    """`weights-from=nfs,node=0s,image=2s`. Raises HeadcountError."""
    if isinstance(given, Startup):
        return given
    found: dict[str, object] = read_parameters(given or "", Startup, "a replica's start-up", "weights-from=nfs,node=0s")
    return typed(found, Startup, "a replica's start-up")
