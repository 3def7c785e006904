"""Pasted texts that are no command of this engine, or that say one in their own words."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.headcount.cli.test_pasted_shapes import settings

Run = Callable[..., Any]
DIRECT = ("--model", "qwen3-8b", "-tp", "2", "--max-model-len", "8192")
SGLANG_LINE = "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2"
VLLM_LINE = "vllm serve Qwen/Qwen3-8B -tp 2"
LOGS = (
    "(APIServer pid=1) INFO 09-03 02:11:28 [utils.py:326] non-default args: {'model_tag': 'Qwen/Qwen2.5-7...",
    "INFO 09-03 02:12:26 [kv_cache_utils.py:849] GPU KV cache size: 1,192,160 tokens\nDEBUG 09-03 02:12:27 it's up",
    "[2026-01-02 10:11:12] server_args=ServerArgs(model_path='Qwen/Qwen3-8B', tp_size=2)",
)
EXTRA_ARGS = """
replicaCount: 1
image:
  repository: vllm/vllm-openai
  tag: v0.33.0
extraArgs:
  - --model
  - Qwen/Qwen3-8B
  - --tensor-parallel-size=2
  - --max-model-len
  - "8192"
"""
KSERVE = """
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
spec:
  predictor:
    model:
      modelFormat:
        name: huggingface
      args:
        - --model_name=qwen
        - --model_id=Qwen/Qwen3-8B
        - --tensor-parallel-size=2
        - --max_model_len=8192
        - --backend=vllm
"""
CONFIG = """
# of the server
model: Qwen/Qwen3-8B
tensor-parallel-size: 2
max_model_len: 8192
port: 8000
trust-remote-code: true
enable-expert-parallel: false
uvicorn-log-level: "info"
served-model-name: [qwen, q]
"""


@pytest.mark.parametrize(
    ("option", "text", "says"),
    [
        (
            "--vllm-args",
            f"{VLLM_LINE} --some-made-up-flag 3",
            "--some-made-up-flag: vLLM has no such flag; leave it out",
        ),
        ("--vllm-args", f"{VLLM_LINE} --aa-bb 3 --cc-dd", "--aa-bb, --cc-dd: vLLM has no such flags; leave them out"),
        ("--vllm-args", f"{VLLM_LINE} --max_num_seq_s 3", "leave it out; did you mean 'max-num-seqs'?"),
        ("--sglang-args", f"{SGLANG_LINE} --made-up-flag", "--made-up-flag: SGLang has no such flag; leave it out"),
        ("--vllm-args", SGLANG_LINE, "this starts SGLang, not vLLM; give it as --sglang-args"),
        (
            "--vllm-args",
            f'image: lmsysorg/sglang:latest\ncommand: ["python3", "-m"]\nargs: {SGLANG_LINE.split()[2:]}',
            "this starts SGLang, not vLLM; give it as --sglang-args",
        ),
        ("--sglang-args", VLLM_LINE, "this starts vLLM, not SGLang; give it as --vllm-args"),
        ("--sglang-args", EXTRA_ARGS.replace("\n  repository: ", " ").replace("\n  tag: ", ":"), "this starts vLLM"),
        *(("--vllm-args", log, "this is a server's log; save it as a file, and give that as --st") for log in LOGS),
        ("--sglang-args", LOGS[2], "this is a server's log; save it as a file, and give that as --startup-log"),
        ("--vllm-args", CONFIG + "made-up: 3\n", "--made-up: vLLM has no such flag; leave it out"),
    ],
)
def test_what_is_of_another_kind_is_named(headcount: Run, option: str, text: str, says: str) -> None:
    ran = headcount("memory", "--gpu", "h100-sxm", f"{option}={text}")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert says in ran.err
    assert ("did you mean" in ran.err) == ("did you mean" in says)


@pytest.mark.parametrize(
    "text",
    [
        "python -m vllm.entrypoints.api_server --model Qwen/Qwen3-8B -tp 2 --max-model-len 8192",
        "python -m vllm.entrypoints.cli.main serve Qwen/Qwen3-8B -tp 2 --max-model-len 8192",
        "vllm serve Qwen/Qwen3-8B ^\r\n  -tp 2 ^\r\n  --max-model-len 8192",
        "vllm serve Qwen/Qwen3-8B `\n  -tp 2 `\n  --max-model-len 8192 `\n",
        EXTRA_ARGS,
        "image: vllm/vllm-openai:v0.33.0\nextraArgs: --model Qwen/Qwen3-8B -tp 2 --max-model-len 8192",
        KSERVE,
        KSERVE.replace("        - --model_id=Qwen/Qwen3-8B\n", "").replace(
            "      args:", "      storageUri: hf://Qwen/Qwen3-8B\n      args:"
        ),
        CONFIG,
        CONFIG.replace("model:", "model_tag:", 1),
    ],
)
def test_servers_in_other_words_are_read(headcount: Run, text: str) -> None:
    assert settings(headcount, "--vllm-args", text) == settings(headcount, *DIRECT)


def test_sglang_s_config_is_read(headcount: Run) -> None:
    found = settings(headcount, "--sglang-args", "model-path: Qwen/Qwen3-8B\ntp-size: 2\ncontext-length: 8192\n")
    assert found == settings(headcount, "--sglang-args", f"{SGLANG_LINE} --context-length 8192")
