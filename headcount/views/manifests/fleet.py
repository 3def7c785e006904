"""What every format of manifests says of a plan's cheapest fleet; fleets that no format deploys are refused."""

import math
import re
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from headcount.queries.plan import PlanResult
from headcount.queries.plan_rows import FleetRow
from headcount.text.units import counted
from headcount.text.words import AT_CONFIDENCE
from headcount.views.manifests.folder import WRITTEN
from headcount.views.of.plan_text import headline
from kvcache.gpus.gpu import find_gpu
from simulator.deployment import Deployment
from simulator.engines.engines import SGLANG, engine_of
from simulator.engines.vllm.environment import FLOAT32_PRECISION, P2P_DISABLE, P2P_LEVEL, ROUTING
from simulator.fleet.startup import GPUS_PER_NODE, ICE, STORAGES, Startup
from simulator.study.fleets.sizing import Sized

PORT: Final = 8000  # of engines and of the router; vLLM's default
TOKEN: Final = "HF_TOKEN"
MODEL_CACHE: Final = "/model-cache"  # HF_HOME in the containers
TOKEN_SECRET: Final = "hf-token"
SLACK: Final = 3.0  # times the estimated start, before a server counts as failed: storage may be that much slower
PROBE_EVERY_S: Final = 10  # Kubernetes' default period of probes
MOST_NAME: Final = 40  # characters of the model in a name: labels have at most 63, and endings are added
_MODELLED: Final = (FLOAT32_PRECISION, ROUTING, P2P_LEVEL, P2P_DISABLE)  # variables that change the answer
_DRIVER_NAMES: Final = (
    "NVIDIA-A100-SXM4-40GB", "NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-80GB-PCIe", "NVIDIA-A800-SXM4-80GB", "NVIDIA-B200",
    "NVIDIA-B300-SXM6-AC", "NVIDIA-GB10", "NVIDIA-GB200", "NVIDIA-GeForce-RTX-4090", "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-H100-PCIe", "NVIDIA-H20", "NVIDIA-H200", "NVIDIA-H800", "NVIDIA-L20", "NVIDIA-L40S",
    "NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "NVIDIA-RTX-PRO-6000-Blackwell-Workstation-Edition",
)  # fmt: skip
"""As the driver names GPUs: vLLM 0.33 layers/fused_moe/configs, device_name. Labels have - for a blank."""


@dataclass(frozen=True, kw_only=True)
class DeployedFleet:
    """The cheapest fleet of a plan: equal servers of at most one node each, all in one pool."""

    answer: PlanResult
    best: FleetRow
    sized: Sized
    is_scaled: bool = False  # whether an autoscaler adds servers

    @property
    def plan(self) -> Deployment:
        return self.sized.layout.plan

    @property
    def is_sglang(self) -> bool:
        return engine_of(self.plan.args) == SGLANG

    @property
    def model(self) -> str:
        """As clients name it."""
        return self.plan.architecture.name

    @property
    def name(self) -> str:
        """A DNS label that begins with a letter, such as `vllm-llama-3-1-8b-instruct`."""
        model = re.sub(r"[^a-z0-9]+", "-", self.model.rsplit("/", 1)[-1].lower())[:MOST_NAME].strip("-")
        return f"{engine_of(self.plan.args)}-{model}".strip("-")

    @property
    def title(self) -> str:
        """What the files' first line says."""
        return f"{WRITTEN}: {headline(self.answer)}"

    @property
    def servers(self) -> int:
        """Spare ones included."""
        return self.sized.servers + self.sized.spare

    @property
    def spare(self) -> int:
        return self.sized.spare

    @property
    def most_servers(self) -> int:
        """Under twice the load, if an autoscaler adds servers."""
        return self.servers + self.needed * self.is_scaled

    @property
    def gpus(self) -> int:
        """Of one server."""
        return self.plan.gpus

    @property
    def is_amd(self) -> bool:
        return self.plan.gpu.is_amd

    @property
    def gpu_resource(self) -> str:
        """The device plugin's name."""
        return "amd.com/gpu" if self.is_amd else "nvidia.com/gpu"

    @property
    def node_selector(self) -> dict[str, str]:
        """GPU feature discovery's label; nothing of a GPU whose driver's name is not known."""
        names = {name.lower(): name for name in _DRIVER_NAMES}
        known = next((names[each] for each in find_gpu(self.plan.gpu.name).aliases if each in names), None)
        return {} if known is None else {"nvidia.com/gpu.product": known}

    @property
    def router(self) -> str | None:
        """None before one server."""
        return self.best.router if self.servers > 1 else None

    @property
    def repository(self) -> str:
        """Of the engine's public image."""
        if self.is_sglang:
            return "lmsysorg/sglang"
        return "vllm/vllm-openai-rocm" if self.is_amd else "vllm/vllm-openai"

    @property
    def tag(self) -> str:
        """That of the release that was simulated."""
        release = self.plan.release
        return f"v{release}{'.0' * (release.count('.') == 1)}"

    @property
    def image(self) -> str:
        return f"{self.repository}:{self.tag}"

    @property
    def command(self) -> list[str]:
        """What stands before the model in the line that starts a server."""
        return ["python3", "-m", "sglang.launch_server"] if self.is_sglang else ["vllm", "serve"]

    @property
    def args(self) -> list[str]:
        """The rest of that line: model and flags; SGLang listens where told, and has metrics if asked."""
        words = shlex.split(self.plan.serve_line)[len(self.command) :]
        return [*words, "--host", "0.0.0.0", "--port", str(PORT), "--enable-metrics"] if self.is_sglang else words

    @property
    def environment(self) -> dict[str, str]:
        """Variables that change the answer; others are not copied: they may hold secrets."""
        given = (each.split("=", 1) for each in self.plan.args.environment)
        return {name: value for name, value in given if name in _MODELLED}

    @cached_property
    def cold_start_s(self) -> float:
        """From the wish for a server until it answers, on a new node."""
        return Startup().stages(self.plan, is_new_node=True).total_s

    @cached_property
    def start_s(self) -> float:
        """From the container's start until a server answers, on a new node."""
        stages = Startup().stages(self.plan, is_new_node=True)
        return stages.total_s - stages.node_s - stages.image_s

    @property
    def start_checks(self) -> int:
        """Failed probes before a server counts as failed."""
        return math.ceil(SLACK * self.start_s / PROBE_EVERY_S)

    @property
    def start_comment(self) -> str:
        storage = STORAGES["object-store"]
        return (
            f"start-up: estimated {self.start_s:,.0f} s once the image is there, and {SLACK:.0f} times that is "
            f"allowed. Weights at {storage.bytes_per_s / 1e9:g} GB/s ({storage.source}); other stages: {ICE}."
        )

    @property
    def shm(self) -> bool:
        """Whether its processes exchange tensors in shared memory."""
        return self.gpus > 1

    @property
    def needed(self) -> int:
        """Servers without the spare ones."""
        return self.sized.servers

    def mean_of_server(self, name: str) -> float:
        """A figure that grows with the fleet, of one server under the users to serve, spare servers down."""
        return self.sized.mean(name) / self.needed

    @property
    def users_text(self) -> str:
        """Such as `352 users at 95 % confidence on each of 2 servers`."""
        each = (self.best.users_low or 0) // self.needed
        return f"{counted(each, 'user')} {AT_CONFIDENCE} on each of {counted(self.needed, 'server')}"

    def token_variable(self) -> Json:
        """The Hugging Face token of a secret that may be absent."""
        secret = {"name": TOKEN_SECRET, "key": "token", "optional": True}
        return {"name": TOKEN, "valueFrom": {"secretKeyRef": secret}}


def deployed_fleet(answer: PlanResult, *, is_scaled: bool = False) -> DeployedFleet:
    """The fleet to write down. Raises HeadcountError where there is none, or none that the formats can say."""
    best, sized = answer.best, answer.race.best
    if best is None or sized is None:
        raise HeadcountError("no fleet serves these users, so there is none to write manifests of")
    if sized.layout.disaggregated is not None:
        raise HeadcountError(
            "manifests of disaggregated prefill/decode are not written; leave out --pools to deploy the cheapest fleet "
            "whose servers do both"
        )
    fleet = DeployedFleet(answer=answer, best=best, sized=sized, is_scaled=is_scaled)
    if fleet.gpus > GPUS_PER_NODE:
        raise HeadcountError(
            f"one server takes {fleet.gpus} GPUs, more than the {GPUS_PER_NODE} of a node; manifests of servers across "
            "nodes are not written: plan with smaller --pipeline-parallel-size or --data-parallel-size"
        )
    if fleet.is_sglang and fleet.is_amd:
        raise HeadcountError(
            "SGLang's images for AMD GPUs are named by ROCm release and GPU, which a plan does not know; plan with "
            "--engine vllm, or with NVIDIA GPUs"
        )
    if re.match(r"^[/.~]", fleet.model):
        raise HeadcountError(
            f"the model is {fleet.model}, a path of this machine; name one that servers can load from Hugging Face"
        )
    return fleet
