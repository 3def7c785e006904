"""Where LoRA adapters lie, in plain Python: as vLLM's LRUCacheWorkerLoRAManager keeps them.

Read from vLLM 0.32 and 0.33: `vllm/lora/worker_manager.py`, `vllm/lora/model_manager.py`. There, the adapters of a step
are gone through in any order, so that one of them may be evicted for another one, and loaded again; here none is.
"""

from collections.abc import Collection

from simulator.engines.vllm.adapters import Adapters


class AdapterSlots:
    """The adapters on the GPU and those in CPU memory, each with the last step that used it."""

    def __init__(self, adapters: Adapters) -> None:
        self.adapters = adapters
        known = range(adapters.num_adapters)  # those that the server is started with, the most popular ones first
        self.in_memory = set(known[: adapters.max_cpu_loras])
        self.on_gpu = set(known[: adapters.max_loras])
        self.used = dict.fromkeys(known, 0)

    def activate(self, adapter: int, used: Collection[int | None]) -> tuple[int, int]:
        """Bring an adapter to the GPU; returns how many were read from disk and copied to the GPU for it.

        Those `used` by running requests stay where they are.
        """
        is_read, is_copied = adapter not in self.in_memory, adapter not in self.on_gpu
        if is_read:
            if len(self.in_memory) >= self.adapters.max_cpu_loras:
                gone = self._oldest(self.in_memory, used)
                self.in_memory -= gone
                self.on_gpu -= gone
            self.in_memory.add(adapter)
        if is_copied:
            if len(self.on_gpu) >= self.adapters.max_loras:
                self.on_gpu -= self._oldest(self.on_gpu, used)
            self.on_gpu.add(adapter)
        return int(is_read), int(is_copied)

    def release(self, adapter: int, step: int) -> None:
        """No running request uses it any more, after that step."""
        self.used[adapter] = step

    def _oldest(self, among: Collection[int], used: Collection[int | None]) -> set[int]:
        """The one used least recently, of those that nobody uses; none where all are used."""
        unused = [adapter for adapter in among if adapter not in used]
        return {min(unused, key=lambda adapter: (self.used[adapter], adapter))} if unused else set()
