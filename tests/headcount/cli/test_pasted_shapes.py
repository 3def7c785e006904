"""Server commands as people paste them: scripts, docker, compose files, manifests; flags in every spelling."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.headcount.conftest import figures

Run = Callable[..., Any]
ON_GPU = ("memory", "--gpu", "h100-sxm", "--json")
DIRECT = ("--model", "llama-3.1-8b", "-tp", "2", "--max-model-len", "8192", "--gpu-memory-utilization", "0.8")
FLAGS = "--tensor-parallel-size 2 --max-model-len 8192 --gpu-memory-utilization 0.8"
LINES = FLAGS.replace(" --", " \\\n    --")
QUOTED = json.dumps(["--model", "llama-3.1-8b", *FLAGS.split()])
MANIFEST = """
apiVersion: apps/v1
kind: Deployment
spec:
  template:
    spec:
      initContainers:
        - name: wait
          image: busybox
      containers:
        - name: vllm
          image: vllm/vllm-openai:v0.33.0
          env:
            - name: HF_TOKEN
              value: x
          args:
            - --model=llama-3.1-8b
            - --tensor-parallel-size
            - "2"
            - --max-model-len
            - 8192
            - --gpu-memory-utilization=0.8
"""
HELM_VALUES = """
servingEngineSpec:
  runtimeClassName: ""
  modelSpec:
    - name: llama3
      repository: "vllm/vllm-openai"
      tag: "v0.33.0"
      modelURL: llama-3.1-8b
      requestGPU: 2
      vllmConfig:
        enablePrefixCaching: true
        tensorParallelSize: 2
        maxModelLen: 8192
        extraArgs: ["--gpu-memory-utilization", "0.8", "--disable-log-requests"]
"""
RESOURCE_SCHEMA = """
kind: CustomResourceDefinition
spec:
  properties:
    model:
      properties:
        modelURL: {type: string}
    vllmConfig: {type: object}
"""
VLLM_RUNTIME = """
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
spec:
  model: {modelURL: llama-3.1-8b, maxModelLen: 8192}
  vllmConfig:
    enableChunkedPrefill: true
    enablePrefixCaching: true
    tensorParallelSize: 2
    gpuMemoryUtilization: "0.8"
"""
INFERENCE_SERVICE = """
apiVersion: v1
kind: Secret
---
apiVersion: serving.kserve.io/v1alpha2
kind: LLMInferenceService
spec:
  model: {uri: "hf://llama-3.1-8b"}
  parallelism: {tensor: 2}
  router: {route: {}}
  template:
    containers:
      - name: main
        env:
          - {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: hf, key: token}}}
          - {name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len=8192 --gpu-memory-utilization 0.8"}
"""
BESIDE_OTHERS = """
apiVersion: v1
kind: Pod
spec:
  initContainers:
    - {name: fetch, image: "tools/fetch:1", command: [fetch, --model-uri, "s3://x"]}
  containers:
    - {name: redis, image: "redis:7", args: [redis-server, --appendonly, "yes"]}
    - name: main
      image: registry.example/team/vllm-openai:v0.33.0-cu130
      env: [{name: LENGTH, value: "8192"}]
      command: ["bash", "-c"]
      args:
        - |
          # two GPUs
          vllm serve llama-3.1-8b --tensor-parallel-size 2 \\
            --max-model-len ${LENGTH} --gpu-memory-utilization 0.8
          echo done
---
apiVersion: v1
kind: Service
"""
SHAPES = {
    "values of a chart": HELM_VALUES,
    "VLLMRuntime": VLLM_RUNTIME,
    "LLMInferenceService": INFERENCE_SERVICE,
    "manifest with others": BESIDE_OTHERS,
    "script": f"#!/bin/bash\n# don't stop\nset -e\nexport HF_TOKEN=x\nvllm serve llama-3.1-8b {LINES}  # two GPUs\n"
    "curl localhost:8000/health",
    "after others": f"pip install vllm && vllm serve llama-3.1-8b {FLAGS} > server.log 2>&1 &",
    "lines without backslashes": "vllm serve llama-3.1-8b\n" + FLAGS.replace(" --", "\n--"),
    "docker": f"docker run --gpus all -p 8000:8000 -v ~/models:/models \\\n  vllm/vllm-openai:v0.33.0 \\\n"
    f"  --model llama-3.1-8b {LINES}",
    "docker with a positional model": f"docker run --gpus all vllm/vllm-openai:v0.33.0 llama-3.1-8b {LINES}",
    "another image": f"docker run --gpus all rocm/vllm:latest vllm serve llama-3.1-8b {FLAGS}",
    "entrypoint": f"docker run --entrypoint vllm vllm/vllm-openai:v0.33.0 serve llama-3.1-8b {FLAGS}",
    "bash -c": f"docker run x/y bash -c 'pip install z && vllm serve llama-3.1-8b {FLAGS}'",
    "python": f"python3 -m vllm.entrypoints.openai.api_server --model llama-3.1-8b {FLAGS}",
    "compose, folded": "services:\n  vllm:\n    image: vllm/vllm-openai:v0.33.0\n    ports: [8000:8000]\n"
    f"    command: >\n      --model llama-3.1-8b\n      {FLAGS}\n",
    "compose, a list": f"command: {QUOTED}",
    "compose, variables of the shell": f"services:\n  a:\n    environment: [HF_TOKEN]\n    command: {QUOTED}\n",
    "compose, lines": "command:\n  - --model\n  - llama-3.1-8b\n"
    + "".join(f"  - '{word}'\n" for word in FLAGS.split()),
    "manifest": MANIFEST,
    "args of a shell": f'command: ["/bin/sh", "-c"]\nargs: ["vllm serve llama-3.1-8b {FLAGS}"]',
    "a list alone": QUOTED,
    "script with variables": "#!/bin/bash\nexport TP=2\nMODEL='llama-3.1-8b'  # small\n"
    "vllm serve $MODEL --tensor-parallel-size ${TP} \\\n  --max-model-len ${LENGTH:-8192} --gpu-memory-utilization 0.8",
    "variables on one line": "TP=2; export MAX=8192 && vllm serve llama-3.1-8b -tp $TP --max-model-len ${MAX:-16384} "
    "--gpu-memory-utilization 0.8",
    "a variable of its own default": "MAX=${MAX:-8192}\nMODEL=llama-3.1-8b; vllm serve $MODEL --max-model-len $MAX "
    "-tp 2 --gpu-memory-utilization 0.8",
    "an array": "ARGS=(\n  --max-model-len 8192\n  -tp 2\n)\n"
    'vllm serve llama-3.1-8b "${ARGS[@]}" --gpu-memory-utilization 0.8',
    "the container's variables": 'env: [{name: MAX, value: "8192"}]\nimage: vllm/vllm-openai:v0.33.0\n'
    "args: [--model, llama-3.1-8b, -tp, 2, '--max-model-len=${MAX:-16384}', --gpu-memory-utilization, 0.8]",
    "its shell's": 'env: [{name: MAX, value: "8192"}]\ncommand: [sh, -c]\n'
    "args: ['vllm serve llama-3.1-8b -tp 2 --max-model-len ${MAX:-16384} --gpu-memory-utilization 0.8']",
    "compose with defaults": "services:\n  vllm:\n    image: ${IMAGE:-vllm/vllm-openai:v0.33.0}\n    command: >\n"
    "      --model ${MODEL:-llama-3.1-8b} --tensor-parallel-size ${TP:-2} --max-model-len 8192\n"
    "      --gpu-memory-utilization ${SHARE:-0.8}",
    "abbreviated": "vllm serve llama-3.1-8b --tensor-parallel 2 --max-model-l 8192 --gpu-memory-util 0.8",
}


def settings(headcount: Run, *arguments: object) -> dict[str, Any]:
    ran = headcount(*ON_GPU, *arguments)
    assert (ran.code, ran.err) == (0, "")
    return figures(ran.out)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_command_is_read_in_every_shape(headcount: Run, shape: str) -> None:
    assert settings(headcount, "--vllm-args", SHAPES[shape]) == settings(headcount, *DIRECT)


def test_what_a_chart_turns_on_or_off_counts(headcount: Run, caplog: pytest.LogCaptureFixture) -> None:
    without = HELM_VALUES.replace("        enablePrefixCaching: true\n", "").replace("llama-3.1-8b", "qwen3.6-27b")
    direct = "qwen3.6-27b -tp 2 --max-model-len 8192 --gpu-memory-utilization 0.8 --no-enable-prefix-caching"
    assert settings(headcount, "--vllm-args", without) == settings(headcount, "--vllm-args", direct)
    lora = INFERENCE_SERVICE.replace("}\n  parallelism", ", lora: {adapters: []}}\n  parallelism")
    assert (
        "--enable-lora needs --adapters: how many LoRA adapters the requests use"
        in headcount(*ON_GPU, "--vllm-args", lora).err
    )
    cached = HELM_VALUES + "      lmcacheConfig: {enabled: true, cpuOffloadingBufferSize: '20'}\n"
    connector: dict[str, object] = {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}
    connector |= {"kv_connector_extra_config": {"lmcache.max_local_cpu_size": 20}}
    given = settings(headcount, *DIRECT, "--kv-transfer-config", json.dumps(connector))
    assert settings(headcount, "--vllm-args", cached) == given
    empty = HELM_VALUES.replace("maxModelLen: 8192", "maxModelLen: 8192\n        maxLoras:")
    assert settings(headcount, "--vllm-args", empty) == settings(headcount, *DIRECT)
    two = HELM_VALUES + HELM_VALUES.partition("modelSpec:")[2].replace("8192", "4096")
    assert headcount(*ON_GPU, "--vllm-args", two).code == 0
    assert "starts 2 different servers; this answers for the first" in caplog.text


@pytest.mark.parametrize(
    "folder",
    ["/models/Llama-3.1-8B-Instruct/", "/data/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e3"],
)
def test_a_folder_of_another_machine_is_the_model_of_its_name(
    headcount: Run, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    ran = headcount(*ON_GPU, "--vllm-args", f"vllm serve {folder} {FLAGS}")
    assert figures(ran.out) == settings(headcount, *DIRECT)
    assert f"{folder} is not on this machine; it is taken as" in caplog.text
    ran = headcount(*ON_GPU, "--vllm-args", f"vllm serve /models/mine {FLAGS}")
    assert (ran.code, ran.out) == (2, "")
    assert "no file '/models/mine'" in ran.err


@pytest.mark.parametrize(
    "flags",
    [
        "--language-model-only",
        """--limit-mm-per-prompt '{"image": 0, "video": 0}'""",
        """--limit-mm-per-prompt '{"image": {"count": 0}, "video": 0}'""",
        "--limit-mm-per-prompt.image 0 --limit-mm-per-prompt.video=0",
        "--limit_mm_per_prompt image=0,video=0",
    ],
)
def test_every_way_to_serve_text_alone_loads_no_encoder(headcount: Run, flags: str) -> None:
    sees = settings(headcount, "--vllm-args", "qwen3-vl-8b --limit-mm-per-prompt.image 0 --max-model-len 8192")
    reads = settings(headcount, "--vllm-args", f"qwen3-vl-8b {flags} --max-model-len 8192")
    assert 0.9 * 2**30 < sees["weights_bytes"] - reads["weights_bytes"] < 1.3 * 2**30
    assert reads["activation_peak_bytes"] < sees["activation_peak_bytes"]


@pytest.mark.parametrize(
    ("flags", "length"),
    [
        ("""--rope-scaling '{"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}'""", 131072),
        ("""--hf-overrides '{"text_config": {"max_position_embeddings": 65536}}'""", 65536),
        ("""--hf-overrides.rope_parameters.factor 2 --hf-overrides.rope_parameters.rope_type yarn
            --hf-overrides.rope_parameters.original_max_position_embeddings 32768""", 65536),
        ("""--rope-scaling '{"rope_type": "yarn", "factor": 4.0}' --max-model-len 100000""", 100000),
        ("--rope-theta 1000000 --max-model-len auto", 40960),
        ("--max-model-len=-1", 40960),
        ("--max-model-len auto '--max_model_len auto'", 40960),
    ],
)  # fmt: skip
def test_overrides_of_the_context_length_are_the_length(headcount: Run, flags: str, length: int) -> None:
    ran = headcount(*ON_GPU, "--vllm-args", f"vllm serve qwen3-8b {flags}")
    assert (ran.code, figures(ran.out)["max_model_len"]) == (0, length)


@pytest.mark.parametrize(
    "more",
    [
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 vllm serve qwen3-8b --max-model-len 65536",
        "vllm serve qwen3-8b --max-model-len 65536",
    ],
)
def test_a_length_beyond_the_model_s_says_with_what_the_server_starts(headcount: Run, more: str) -> None:
    found = json.loads(headcount(*ON_GPU, "--vllm-args", more).out)["diagnostics"]
    texts = [each["text"] for each in found if each["code"] == "beyond-model-length"]
    assert len(texts) == (0 if "ALLOW" in more else 1)
    assert all("starts only with --hf-overrides that raises the limit, or VLLM_ALLOW" in text for text in texts)


@pytest.mark.parametrize("flags", ["-O0", "-O.cudagraph_mode=NONE", "--enforce-eager", "-cc.cudagraph_mode=PIECEWISE"])
def test_memory_reads_what_decides_a_start(headcount: Run, flags: str) -> None:
    """With full CUDA graphs 1,024 sequences are more than there are blocks for states."""
    line = "vllm serve qwen3.6-27b-fp8 --max-model-len 32768 --max-num-seqs 1024"
    assert headcount(*ON_GPU, "--vllm-args", line).code == 2
    ran = headcount(*ON_GPU, "--vllm-args", f"{line} {flags}")
    assert ran.code == 0
    assert (figures(ran.out)["cuda_graph_bytes"] == 0) == ("PIECEWISE" not in flags)
    whole = "vllm serve qwen3-8b --enable-chunked-prefill false"  # then a step holds the longest prompt by default
    assert figures(headcount(*ON_GPU, "--vllm-args", whole).out)["max_num_batched_tokens"] == 40_960
    ran = headcount(*ON_GPU, "--vllm-args", f"{whole} --max-num-batched-tokens 8192")
    assert ran.code == 2
    assert "without chunked prefill max_num_batched_tokens (8,192) must be at least max_model_len" in ran.err


@pytest.mark.parametrize(
    ("gpu", "model"),
    [("v100", "qwen3-8b-awq"), ("v100", "qwen3-8b-fp8"), ("v100", "gpt-oss-20b"), ("t4", "gpt-oss-20b")],
)
def test_formats_without_kernels_for_a_gpu_are_refused(headcount: Run, gpu: str, model: str) -> None:
    ran = headcount("memory", "--gpu", gpu, "--model", model, "--max-model-len", 4096)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "is older than vLLM's kernels for" in ran.err


@pytest.mark.parametrize(
    ("line", "tokens"),
    [
        ("vllm/vllm-openai:v0.20.0 --model google/gemma-4-31B-it -tp 2", None),  # vllm-project/recipes issue 441
        ("vllm/vllm-openai:v0.33.0 --model google/gemma-4-31B-it -tp 2", 2496),  # it raises its default
        ("vllm serve google/gemma-4-26B-A4B-it -tp 2 --max-num-batched-tokens 2048", None),
        (
            "vllm serve google/gemma-4-26B-A4B-it -tp 2 --max-num-batched-tokens 2048 --limit-mm-per-prompt.video 0",
            2048,
        ),
        ("vllm serve google/gemma-4-26B-A4B-it -tp 2 --max-num-batched-tokens 2048 --language-model-only", 2048),
        ("vllm serve google/gemma-3-4b-it --max-num-batched-tokens 128", None),
    ],
)
def test_an_image_or_video_that_is_not_divided_fits_a_step(headcount: Run, line: str, tokens: int | None) -> None:
    ran = headcount("memory", "--gpu", "l40s", "--json", "--vllm-args", f"{line} --max-model-len 8192")
    if tokens is None:
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert "in one step" in ran.err
    else:
        assert figures(ran.out)["max_num_batched_tokens"] == tokens


def test_kv_bytes_are_those_of_each_gpu(headcount: Run) -> None:
    found = settings(headcount, "--vllm-args", "llama-3.1-8b --kv-cache-memory-bytes 16G --max-model-len 8192")
    assert found["available_kv_bytes"] == 16 * 2**30
    assert found["num_gpu_blocks"] == found["num_gpu_blocks_low"] == 16 * 2**30 // (16 * 128 * 1024)


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        ("--kv-cache-memory-bytes 70G", "kv_cache_memory_bytes is 70.0 GiB, and weights with activations take"),
        ("--cpu-offload-gb 10 --enable-dbo", "offloading of weights to CPU memory is not simulated; leave "
         "--cpu-offload-gb out; two-batch overlap is not simulated; leave --enable-dbo out"),
        ("-dcp 2", "decode_context_parallel_size 2 does not divide tensor_parallel_size 1"),
        ("-pcp 2", "prefill context parallelism is not simulated; leave -pcp out, or give --tensor-parallel-size"),
        ("""--hf-overrides '{"num_hidden_layers": 4}'""", "'num_hidden_layers' changes the model"),
        ("--num-gpus 4 --usp 4 --vae-use-tiling", "vLLM-Omni, another server, is not simulated; leave --num-gpus"),
        ("""--speculative-config '{"model": "x/gemma-4-31B-it-assistant", "num_speculative_tokens": 4}'""",
         "an assistant of Gemma 4 reads the model's own KV cache, which is not modelled"),
        ("""--speculative-config '{"model": "x/y-dflash", "num_speculative_tokens": 4}'""", "method is 'dflash'"),
        ("--quantization modelopt_fp4", "'modelopt_fp4' is a packed checkpoint's, and this one is not packed"),
        ("--runner pooling", "a task other than generating text is not simulated"),
        ("--limit-mm-per-prompt.image=-1", "image is '-1'; give a whole number of at least 0"),
        ("--mm-encoder-tp-mode rows", "no mm_encoder_tp_mode 'rows'"),
        ("-O '[1]'", "optimization level '[1]'; vLLM has 0, 1, 2, 3"),
        ("-O '{\"x\"'", "--compilation-config, column"),
        ("--speculative-config.method", "--speculative-config.method takes one value; it was given none"),
        ("--config serve.yaml", "a file of options is not simulated; leave --config out, or give its options"),
    ],
)  # fmt: skip
def test_what_changes_the_answer_is_refused_with_the_nearest(headcount: Run, flags: str, part: str) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", "--vllm-args", f"llama-3.1-8b --max-model-len 8192 {flags}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err


@pytest.mark.parametrize(
    "flags",
    [
        "--cpu-offload-gb 0 -dcp 1 --no-enable-lora --runner generate --mamba-cache-mode align",
        "--default-chat-template-kwargs.enable_thinking false --override-generation-config '{\"top_k\": 1}'",
        "--served-model-name a b --api-key x y --mm-processor-cache-type shm --api-server-count 4 --max-logprobs 5",
        "--no-enable-log-requests --disable-uvicorn-access-log --config_format mistral --load_format=mistral",
        "--compilation-config 3 --disable-lora --disable-dbo --disable-eplb --enable-uvicorn-access-log",
        "--enable-hybrid-kv-cache-manager --compilation-config=3",
    ],
)
def test_flags_without_effect_leave_the_answer(headcount: Run, flags: str) -> None:
    line = "vllm serve llama-3.1-8b --max-model-len 8192"
    assert settings(headcount, "--vllm-args", f"{line} {flags}") == settings(headcount, "--vllm-args", line)


@pytest.mark.parametrize(("new", "old"), [("--disable", "--no-enable"), ("--no-disable", "--enable")])
def test_enable_and_disable_are_a_pair_as_in_vllm_0_33(headcount: Run, new: str, old: str) -> None:
    line = "vllm serve qwen3.6-27b --max-model-len 8192 --max-num-seqs 64 --enforce-eager"
    new_way, old_way = (settings(headcount, "--vllm-args", f"{line} {each}-prefix-caching") for each in (new, old))
    assert new_way == old_way
    assert (new_way["state_bytes_per_request"] > 2 * 160e6) == (old == "--enable"), "with it, states of block ends too"


def test_kernels_of_one_s_own_choice_are_named_as_ignored(headcount: Run, caplog: pytest.LogCaptureFixture) -> None:
    line = "llama-3.1-8b --max-model-len 8192 --attention-backend TRITON_ATTN -ac.backend=X"
    assert headcount(*ON_GPU, "--vllm-args", line).code == 0
    assert "--attention-backend, -ac.backend are not modelled: the answer ignores them" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path llama-3.1-8b --tp 2",
        "sglang serve --model-path llama-3.1-8b --tp-size 2 --tokenizer-worker-num 4 --host 0.0.0.0 --enable-metrics",
        'command: ["python3", "-m", "sglang.launch_server"]\nargs: ["--model-path", "llama-3.1-8b", "--tp", "2"]',
        "python -m sglang.launch_server --model llama-3.1-8b --tp 2 --ep 1 --moe-a2a-backend none --random-seed 1",
    ],
)
def test_sglang_s_commands_are_read_in_every_shape(headcount: Run, text: str) -> None:
    direct = settings(headcount, "--engine", "sglang", "--model", "llama-3.1-8b", "-tp", "2")
    assert settings(headcount, "--sglang-args", text) == direct


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("command: 5", "is empty; paste a"),
        ("args: {a: b}", "is empty; paste a"),
        ('services:\n  vllm:\n    command: "vllm serve \'x"', "a quote is left open"),
        ("kind: Service\nspec: {type: x}\nengine:\n  image: vllm/vllm-openai", "is empty; paste a"),
        ("kind: Pod\nspec:\n  containers:\n    - {image: redis, args: [redis-server, --x]}", "is empty; paste a"),
        (
            "kind: Pod\nspec:\n  containers:\n    - {image: a/vllm-openai:v1, command: [sleep, infinity]}",
            "is empty; paste a",
        ),
        (RESOURCE_SCHEMA, "is empty; paste a"),
        ("- --model", "--model takes one value; it was given none"),
        ("bash -c 'vllm serve \"x'", "a quote is left open"),
        ("vllm serve && echo", "is empty; paste a"),
        ("docker run -e HF_TOKEN vllm/vllm-tpu:latest vllm serve ...", "is empty; paste a"),
    ],
)
def test_a_damaged_command_is_told_in_a_line(headcount: Run, text: str, part: str) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", f"--vllm-args={text}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err
