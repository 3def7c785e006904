"""Serves the same prompts three times with vLLM and LMCache on CPU; run by an interpreter that has both.

usage: python lmcache_loading_probe.py [async] > ANSWERS.jsonl

With `async` LMCache's `enable_async_loading` is on. A line says what a request was answered, or why the engine failed;
one at the end how many chunks lie in host memory, and of how many the memory was given back. A tiny model with random
weights runs in vLLM itself. All of LMCache is its own but the copies between vLLM's blocks and its chunks, which it has
for accelerators alone; they begin as its own do, by asking that the chunk has memory.
"""

import importlib
import json
import os
import random
import sys
import tempfile
import time

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONHASHSEED": "0"}
os.environ |= {"VLLM_LOGGING_LEVEL": "ERROR", "LMCACHE_LOG_LEVEL": "WARNING"}

from vllm import LLM, SamplingParams
from vllm.config import KVTransferConfig
from vllm.distributed.kv_transfer import get_kv_transfer_group
from vllm.distributed.kv_transfer.kv_connector.v1 import lmcache_connector

BLOCK_SIZE = 32  # also of a chunk
NUM_BLOCKS = 34  # three prompts fill them, so that none is found there again
NUM_PROMPTS, PROMPT_TOKENS, NUM_TURNS = 6, 320, 3
HOST_GIB = 0.05  # every chunk fits
MODEL = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
    "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 64, "num_hidden_layers": 2, "vocab_size": 512,
    "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "torch_dtype": "float32", "hidden_act": "silu",
}  # fmt: skip


def copied_on_cpu():
    """LMCache has no copies for CPUs: give it some; once vLLM's worker is there, which LMCache's modules disturb."""
    gpu_connector = importlib.import_module("lmcache.v1.gpu_connector")

    class CPUConnector(gpu_connector.gpu_connectors.GPUConnectorInterface):
        def to_gpu(self, memory_obj, start, end, **kwargs):
            assert memory_obj.tensor is not None  # as LMCache's own
            for chunk, part in self.parts(memory_obj, start, end, **kwargs):
                part[:] = chunk

        def from_gpu(self, memory_obj, start, end, **kwargs):
            assert memory_obj.tensor is not None
            for chunk, part in self.parts(memory_obj, start, end, **kwargs):
                chunk[:] = part

        def parts(self, memory_obj, start, end, *, kvcaches, slot_mapping, **_):
            """Keys, and values, of each layer: of the chunk and of the block, which has them by head and token."""
            block = int(slot_mapping[start]) // BLOCK_SIZE
            for layer, blocks in enumerate(kvcaches):
                for number, half in enumerate(blocks[block].chunk(2, dim=-1)):
                    yield memory_obj.tensor[number, layer].view(end - start, *half.shape[::2]), half.transpose(0, 1)

        def batched_to_gpu(self, memory_objs, starts, ends, **kwargs):
            for copied in zip(memory_objs, starts, ends, strict=True):
                self.to_gpu(*copied, **kwargs)

        def batched_from_gpu(self, memory_objs, starts, ends, **kwargs):
            for copied in zip(memory_objs, starts, ends, strict=True):
                self.from_gpu(*copied, **kwargs)

        def get_shape(self, _):
            raise NotImplementedError

    gpu_connector.CreateGPUConnector = lambda *_, **__: CPUConnector()


def engine(folder, is_async):
    begin = lmcache_connector.LMCacheConnectorV1.__init__

    def begin_on_cpu(*args, **kwargs):
        copied_on_cpu()
        begin(*args, **kwargs)

    lmcache_connector.LMCacheConnectorV1.__init__ = begin_on_cpu
    with open(f"{folder}/config.json", "w") as file:
        json.dump(MODEL, file)
    extra = {"chunk_size": BLOCK_SIZE, "max_local_cpu_size": HOST_GIB, "enable_async_loading": is_async}
    return LLM(
        folder, load_format="dummy", skip_tokenizer_init=True, dtype="float32", max_model_len=1024, enforce_eager=True,
        num_gpu_blocks_override=NUM_BLOCKS, block_size=BLOCK_SIZE, seed=0, disable_hybrid_kv_cache_manager=True,
        kv_transfer_config=KVTransferConfig(
            kv_connector="LMCacheConnectorV1", kv_role="kv_both",
            kv_connector_extra_config={f"lmcache.{name}": value for name, value in extra.items()},
        ),
    )  # fmt: skip


def serve(llm):
    draws = random.Random(1)
    prompts = [[draws.randrange(3, 512) for _ in range(PROMPT_TOKENS)] for _ in range(NUM_PROMPTS)]
    params = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False)
    for turn in range(NUM_TURNS):
        for number, prompt in enumerate(prompts):
            begin_s = time.perf_counter()
            answer = llm.generate([{"prompt_token_ids": prompt}], params, use_tqdm=False)[0]
            yield {
                "turn": turn, "prompt": number, "num_cached_tokens": answer.num_cached_tokens,
                "answer": list(answer.outputs[0].token_ids), "e2e_s": round(time.perf_counter() - begin_s, 4),
            }  # fmt: skip


def main():
    with tempfile.TemporaryDirectory() as folder:
        llm = engine(folder, sys.argv[1:] == ["async"])
        try:
            for answer in serve(llm):
                print(json.dumps(answer), flush=True)
        except AssertionError as error:
            print(json.dumps({"error": repr(error)}))
        manager = get_kv_transfer_group()._lmcache_engine.lmcache_engine.storage_manager
        memories = list(manager.local_cpu_backend.hot_cache.values())
        freed = sum(not memory.is_valid() for memory in memories)
        print(json.dumps({"chunks": len(memories), "given_back": freed}), flush=True)
    os._exit(0)  # LMCache's threads would not let it end


if __name__ == "__main__":
    main()
