"""How long a replica takes to start, beside measured starts."""

import pytest

from simulator.deployment import resolve
from simulator.fleet.startup import STORAGES, Stages, Startup, read_startup, stages_of

# Model, billions of parameters, layers, seconds of vLLM's log, seconds of the whole run: A100, vLLM 0.10.1, warm.
# github.com/upb-cn/vllm-startup-profiler, experiments/A100/examples/model_size/avg_comparison_results.json
MEASURED = [
    ("falcon-7b", 7.22, 32, 37.9, 45.2),
    ("llama2-13b", 13.02, 40, 51.3, 58.7),
    ("llama2-7b", 6.74, 32, 37.8, 45.0),
    ("llama3-3b", 3.21, 28, 32.4, 40.4),
    ("qwen-0.5b", 0.62, 24, 26.4, 33.8),
    ("qwen-14b", 14.17, 40, 53.1, 60.9),
    ("qwen-1.8b", 1.84, 24, 28.6, 35.6),
    ("qwen-4b", 3.95, 40, 39.3, 47.1),
    ("qwen-7b", 7.72, 32, 39.3, 46.7),
    ("yi-6b", 6.06, 32, 36.5, 43.8),
    ("yi-9b", 8.83, 48, 46.6, 54.3),
]


def start(billions: float, layers: int, *, is_new_node: bool = False) -> Stages:
    """As measured: 16 bits, one GPU, 67 graphs, files on local disk."""
    return stages_of(
        weights_bytes=2e9 * billions, gpus=1, billions=billions, layers=layers, captured_sizes=67,
        storage=STORAGES["local-disk"], is_new_node=is_new_node,
    )  # fmt: skip


@pytest.mark.parametrize(("model", "billions", "layers", "logged_s", "whole_s"), MEASURED)
def test_a_warm_start_takes_what_was_measured(
    model: str, billions: float, layers: int, logged_s: float, whole_s: float
) -> None:
    stages = start(billions, layers)
    assert stages.total_s - stages.probe_s == pytest.approx(whole_s, rel=0.05), f"{model}; the log says {logged_s}"


@pytest.mark.parametrize(("billions", "layers", "whole_s"), [(6.74, 32, 104.0), (13.02, 40, 128.0), (0.62, 24, 77.0)])
def test_a_first_start_compiles_and_captures_anew(billions: float, layers: int, whole_s: float) -> None:
    """Totals of cold runs of the same source, whose files are on the node already."""
    stages = start(billions, layers, is_new_node=True)
    assert stages.total_s - stages.probe_s - stages.node_s - stages.image_s == pytest.approx(whole_s, rel=0.15)


def test_given_stages_make_up_the_278_s_of_a_measured_start() -> None:
    """Qwen3-32B on one H100, GKE, vLLM 0.26: mount, imports, download and load, engine initialization."""
    given = Startup(node_s=0.0, image_s=1.8, process_s=73.0, weights_s=130.0, compile_s=64.0, profile_s=0.0,
                    capture_s=9.0, probe_s=0.0)  # fmt: skip
    stages = given.stages(
        resolve("qwen3-32b", "h100-sxm", max_model_len=32_768, vllm_version="0.26.0"), is_new_node=True
    )
    assert stages.total_s == pytest.approx(278, abs=0.5)


def test_a_node_that_has_started_a_replica_keeps_image_weights_and_compiled_code() -> None:
    plan = resolve("llama-3.1-8b", "h100-sxm")
    first, later = (Startup().stages(plan, is_new_node=new) for new in (True, False))
    assert later.node_s == later.image_s == 0
    assert later.weights_s < first.weights_s
    assert later.compile_s < first.compile_s
    assert later.capture_s < first.capture_s
    assert 40 < later.total_s < 60
    assert 200 < first.total_s < 300


def test_several_gpus_read_their_shares_side_by_side_but_an_object_store_serves_them_all() -> None:
    one, two = (resolve("llama-3.1-70b", "h200", tensor_parallel_size=tp) for tp in (2, 4))
    nfs, store = Startup(weights_from="nfs"), Startup()
    assert nfs.stages(one, is_new_node=True).weights_s == pytest.approx(22.6, rel=0.02)  # measured: Llama-3.3-70B TP 2
    assert nfs.stages(two, is_new_node=True).weights_s < 0.6 * nfs.stages(one, is_new_node=True).weights_s
    assert store.stages(two, is_new_node=True).weights_s == pytest.approx(270, rel=0.02)  # measured: 240 to 300 s


def test_an_eager_engine_neither_compiles_nor_captures() -> None:
    stages = Startup().stages(resolve("llama-3.1-8b", "h100-sxm", enforce_eager=True), is_new_node=True)
    assert stages.compile_s == stages.capture_s == 0


def test_a_given_stage_holds_and_the_others_follow() -> None:
    plan = resolve("llama-3.1-8b", "h100-sxm")
    given = read_startup("weights=20s,node=0s").stages(plan, is_new_node=True)
    assert (given.weights_s, given.node_s) == (20, 0)
    assert given.compile_s == Startup().stages(plan, is_new_node=True).compile_s
    assert given.to_json()["total_s"] == given.total_s


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("weight=20s", "'weight=20s' is no parameter of a replica's start-up; did you mean 'weights'"),
        ("weights=20", "'20' is not a time"),
        ("weights-from=tape", "weights_from is 'tape'; it must be one of"),
        ("weights", "it takes weights_from"),
    ],
)
def test_a_start_that_is_none_is_told(given: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_startup(given)
