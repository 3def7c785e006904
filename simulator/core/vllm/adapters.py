"""LoRA adapters, compiled: how many of them run at once, where they lie, how long steps take with them.

The most recently used ones stay on the GPU, and more of them in CPU memory, as in vLLM's LRUCacheWorkerLoRAManager
(vllm/lora/worker_manager.py). One that a running request uses is never evicted.
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.layout import NONE
from simulator.core.state import Arrays
from simulator.core.vllm.layout import IN_CPU_MEMORY, ON_DISK, ON_GPU


@kernel
def may_enter(a: Arrays, replica: int, request: int) -> bool:
    """Whether the request's adapter runs already, or another one may."""
    if a.adapters[replica, a.adapter_of[request]].running > 0:
        return True
    return bool(a.adapter_states[replica].num_running < a.pools[a.replicas[replica].pool].max_loras)


@kernel
def enter(a: Arrays, replica: int, request: int) -> None:
    """A request begins to run: its adapter has to lie on the GPU."""
    adapter = a.adapter_of[request]
    of = a.adapters[replica, adapter]
    if of.running == 0:
        a.adapter_states[replica].num_running += 1
        if of.place != ON_GPU:
            load(a, replica, adapter)
    of.running += 1


@kernel
def leave(a: Arrays, replica: int, request: int) -> None:
    """A request no longer runs."""
    of = a.adapters[replica, a.adapter_of[request]]
    of.running -= 1
    if of.running == 0:
        a.adapter_states[replica].num_running -= 1
        of.used = a.replicas[replica].step


@kernel
def set_aside(a: Arrays, replica: int, request: int) -> None:
    """Do not count a running request that gets no tokens in this step, as in releases before 0.33."""
    state, adapter = a.adapter_states[replica], a.adapter_of[request]
    of = a.adapters[replica, adapter]
    of.running -= 1
    state.num_running -= of.running == 0
    a.idle_adapters[replica, state.num_idle] = adapter
    state.num_idle += 1


@kernel
def bring_back(a: Arrays, replica: int) -> None:
    """Count them again."""
    state = a.adapter_states[replica]
    for place in range(state.num_idle):
        of = a.adapters[replica, a.idle_adapters[replica, place]]
        state.num_running += of.running == 0
        of.running += 1
    state.num_idle = 0


@rare_kernel
def load(a: Arrays, replica: int, adapter: int) -> None:
    """Bring an adapter to the GPU; the step that needs it waits."""
    p, state = a.pools[a.replicas[replica].pool], a.adapter_states[replica]
    of = a.adapters[replica, adapter]
    if of.place == ON_DISK:
        if state.num_in_memory >= p.max_cpu_loras:
            evict(a, replica, IN_CPU_MEMORY, ON_DISK)
        state.num_in_memory += 1
        state.load_s += p.adapter_read_s
    if state.num_on_gpu >= p.max_loras:
        evict(a, replica, ON_GPU, IN_CPU_MEMORY)
    state.num_on_gpu += 1
    of.place = ON_GPU
    state.load_s += p.adapter_load_s
    a.totals[replica].adapter_loads += 1


@rare_kernel
def evict(a: Arrays, replica: int, least: int, into: int) -> None:
    """Take the least recently used adapter that lies at `least` there to where it goes, if there is one."""
    state, oldest = a.adapter_states[replica], NONE
    for adapter in range(a.adapters.shape[1]):
        of = a.adapters[replica, adapter]
        if of.place < least or of.running > 0:
            continue
        if oldest == NONE or of.used < a.adapters[replica, oldest].used:
            oldest = adapter
    if oldest == NONE:
        return
    of = a.adapters[replica, oldest]
    state.num_on_gpu -= of.place == ON_GPU
    state.num_in_memory -= into == ON_DISK
    of.place = into


@kernel
def step_s(a: Arrays, replica: int) -> float:
    """What a step takes longer with the adapters of those that run."""
    num_running = a.adapter_states[replica].num_running
    a.totals[replica].adapters += num_running
    return float(num_running * a.pools[a.replicas[replica].pool].adapter_s)


@kernel
def take_load_s(a: Arrays, replica: int) -> float:
    """How long the step waits for adapters that are loaded for it."""
    state = a.adapter_states[replica]
    load_s = state.load_s
    a.totals[replica].adapter_load_s += load_s
    state.load_s = 0.0
    return float(load_s)
