"""Charts and resources that write the server's command themselves: the words that each makes of its values."""

import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from files.documents import Json

_VALUES: Final = {  # of `vllmConfig`, and in vLLM's production stack's own resource also beside the model
    "maxModelLen": "--max-model-len",
    "dtype": "--dtype",
    "tensorParallelSize": "--tensor-parallel-size",
    "pipelineParallelSize": "--pipeline-parallel-size",
    "maxNumSeqs": "--max-num-seqs",
    "gpuMemoryUtilization": "--gpu-memory-utilization",
    "maxLoras": "--max-loras",
    "runner": "--runner",
    "convert": "--convert",
}
_PARALLELISM: Final = {
    "tensor": "--tensor-parallel-size",
    "pipeline": "--pipeline-parallel-size",
    "data": "--data-parallel-size",
}


def production_stack_words(spec: Json) -> list[str]:
    """Of a model in the values of vLLM's production stack (helm/templates/deployment-vllm-multi.yaml, 2026-11).

    Without `enablePrefixCaching` a `vllmConfig` turns prefix caching off; LMCache is a connector with variables.
    """
    return list(_served(spec, spec.get("modelURL"), spec))


def vllm_runtime_words(spec: Json) -> list[str]:
    """Of the production stack's VLLMRuntime (operator/internal/controller/vllmruntime_controller.go, 2026-11)."""
    model, lmcache = _mapping(spec, "model"), _mapping(spec, "lmCacheConfig")
    config = {"enableChunkedPrefill": False, **model, **_mapping(spec, "vllmConfig")}
    return list(_served({"vllmConfig": config, "lmcacheConfig": lmcache}, model.get("modelURL"), model))


def inference_service_words(spec: Json) -> list[str]:
    """Of KServe's LLMInferenceService (config/llmisvcconfig, 2026-11): parallelism, and its container's arguments."""
    model, container = _mapping(spec, "model"), _first_container(spec)
    own = dict(each.split("=", 1) for each in _environment(container.get("env")))
    name = model.get("name") or str(model.get("uri", "")).removeprefix("hf://")
    parallelism = _mapping(spec, "parallelism")
    words = ["vllm", "serve", str(name), *_flags(parallelism, _PARALLELISM)]
    words += ["--enable-expert-parallel"] * bool(parallelism.get("expert")) + ["--enable-lora"] * ("lora" in model)
    listed = container.get("args")
    words += [str(each) for each in listed] if isinstance(listed, list) else []
    more = shlex.split(own.pop("VLLM_ADDITIONAL_ARGS", ""))
    return [*(f"{key}={value}" for key, value in own.items()), *words, *more]


CHARTS: Final[Mapping[frozenset[str], Callable[[Json], list[str]]]] = {  # by the keys of its mapping
    frozenset({"modelURL", "repository"}): production_stack_words,
    frozenset({"model", "vllmConfig"}): vllm_runtime_words,
    frozenset({"model", "template", "router"}): inference_service_words,
}


def _served(spec: Json, model: object, switches: Json) -> Iterator[str]:
    config, lmcache = _mapping(spec, "vllmConfig"), _mapping(spec, "lmcacheConfig")
    if not isinstance(model, str):  # the schema of such a resource
        return
    yield from ("vllm", "serve", model)
    if switches.get("enableLoRA"):
        yield "--enable-lora"
    if config:
        if "enableChunkedPrefill" in config:
            yield "--enable-chunked-prefill" if config["enableChunkedPrefill"] else "--no-enable-chunked-prefill"
        yield "--enable-prefix-caching" if config.get("enablePrefixCaching") else "--no-enable-prefix-caching"
    yield from _flags(config, _VALUES)
    more = config.get("extraArgs")
    yield from (str(each) for each in more) if isinstance(more, list) else ()
    if lmcache.get("enabled"):
        yield from ("--kv-transfer-config", json.dumps(_lmcache_connector(lmcache)))


def _lmcache_connector(config: Json) -> Json:
    """The chart gives the size in a variable; here it stands where `--kv-transfer-config` has it."""
    found: Json = {"kv_connector": "LMCacheConnectorV1", "kv_role": config.get("kvRole", "kv_both")}
    size = str(config.get("cpuOffloadingBufferSize", ""))
    return found | (
        {"kv_connector_extra_config": {"lmcache.max_local_cpu_size": float(size)}} if _is_number(size) else {}
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _flags(values: Json, flags: Mapping[str, str]) -> list[str]:
    return [word for key, flag in flags.items() if values.get(key) is not None for word in (flag, str(values[key]))]


def _first_container(spec: Json) -> Json:
    containers = _mapping(spec, "template").get("containers")
    found = containers[0] if isinstance(containers, list) and containers else {}
    return found if isinstance(found, dict) else {}


def _environment(value: object) -> list[str]:
    listed = value if isinstance(value, list) else []
    given = (each for each in listed if isinstance(each, dict) and each.get("value") is not None)
    return [f"{each.get('name')}={each['value']}" for each in given]


def _mapping(values: Json, key: str) -> Json:
    found = values.get(key)
    return found if isinstance(found, dict) else {}
