"""Steps of an engine that serves an average mix: how long they take, and the KV blocks of what they serve."""

import math
from dataclasses import dataclass

import numpy as np

from simulator.deployment import Deployment
from simulator.engines.sglang.engine import EngineConfig as SGLangConfig
from simulator.engines.vllm.engine import EngineConfig
from simulator.study.traffic import FloatArray, IntArray, Rows, Traffic


@dataclass(frozen=True, kw_only=True, eq=False)
class Steps:
    """Steps in which so many sequences decode; prefill by request."""

    decodes: float
    step_s: float  # of decodes alone
    token_s: float  # the same per token of an answer
    growth_s: float  # of `token_s` by one more sequence
    prefill_s: FloatArray  # by how much prefill lengthens steps, over all its chunks
    chunks: FloatArray  # steps that the prefill takes part in
    share: FloatArray  # of a step's token budget, above 1 in several chunks
    encoder_s: float = 0.0  # of `prefill_s`, on average, for images


def mean_engine(engine: EngineConfig | SGLangConfig) -> EngineConfig:
    """What mean values go by: of SGLang, the settings of vLLM that come nearest."""
    if isinstance(engine, EngineConfig):
        return engine
    return EngineConfig(
        num_gpu_blocks=engine.num_usable_blocks + 1,
        block_size=engine.page_size,
        max_model_len=engine.max_model_len,
        max_num_seqs=engine.max_num_seqs,
        max_num_batched_tokens=engine.max_num_batched_tokens,
        enable_prefix_caching=not engine.disable_radix_cache,
        async_scheduling=not engine.disable_overlap_schedule,
        prefix_cache_retention_interval=None,
        speculation=engine.speculation,
    )


class MeanSteps:
    """What a deployment's steps take for one traffic. Lengths in tokens, times in seconds."""

    def __init__(self, deployment: Deployment, traffic: Traffic) -> None:
        self.config, self.times = mean_engine(deployment.engine), deployment.latency.step_times
        self.ranks = deployment.ranks_in_step
        engine = deployment.engine
        self.prefills_alone = isinstance(engine, SGLangConfig) and not engine.is_mixed_chunk
        self.stages = self.config.pipeline_parallel_size
        self.prompt = traffic.prompt
        self.answer = np.maximum(traffic.output - 1, 1).astype(np.float64)  # the first token comes of prefill
        middle = traffic.prompt + traffic.output / 2
        self.context, self.context_variance = self._mean_and_variance(middle)
        self.window_context, _ = self._mean_and_variance(np.minimum(middle, self.times.window))
        common = self._common_blocks(traffic.cache.common) if self.config.enable_prefix_caching else 0.0
        held, variance = self._mean_and_variance(self._blocks(middle) - common)
        self.usable_blocks = max(self.config.num_gpu_blocks - 1 - common, 1.0)
        self.held_blocks = max(held, 1.0)  # by a sequence, while it decodes
        self.held_peakedness = 1 + variance / self.held_blocks**2
        self.blocks_per_token = float((self._blocks(middle + traffic.output / 2) / middle).mean())
        speculation = self.config.speculation
        self._tokens_per_step = speculation.tokens_per_step if speculation else 1.0
        adapters = self.config.adapters
        self._adapter_shares = np.zeros(0) if adapters is None else adapters.shares
        self._max_loras = 0 if adapters is None else adapters.max_loras
        self._images = traffic.images
        self._scheduled_per_step = speculation.width if speculation else 1

    def _mean_and_variance(self, values: FloatArray) -> tuple[float, float]:
        """Over the time that sequences decode."""
        mean = float(np.average(values, weights=self.answer))
        return mean, float(np.average((values - mean) ** 2, weights=self.answer))

    def _blocks(self, tokens: FloatArray) -> FloatArray:
        """KV blocks of sequences of so many tokens, over all groups of layers."""
        total = np.zeros(len(tokens))
        for group, size in zip(self.config.kv_groups, self.config.group_block_sizes, strict=True):
            if group.is_state:
                total += 1  # while it decodes
            else:
                seen = tokens if group.window is None else np.minimum(tokens, group.window + size)
                total += np.ceil((seen + 1) / size)
        return total

    def _common_blocks(self, tokens: float) -> float:
        """Those of a prefix that all sequences hold together; windows soon leave it behind."""
        groups = zip(self.config.kv_groups, self.config.group_block_sizes, strict=True)
        return sum(tokens // size for group, size in groups if group.window is None and not group.is_state)

    def steps(self, decodes: float, new: IntArray, rows: Rows) -> Steps:
        """With so many sequences decoding, when the prompts in `rows` have so many tokens to compute."""
        each = max(decodes / self.stages, 1.0)  # of a pipeline's microbatch
        low, near = math.floor(each), round(each)
        beside = 0 if self.prefills_alone else near  # sequences that decode in a step with prefill
        budget = self._chunk(beside)
        whole, rest = np.divmod(new, budget)
        is_short = whole == 0
        end = self.prompt[rows]
        work = _attended(end - new, end)
        window_work = (
            _attended_in_window(end - new, end, self.times.window) if self.times.window_prefill_s else 0 * work
        )
        seconds = self._step_s(
            np.concatenate([np.full(len(new), beside), [low, low + 1, beside, beside]]),
            np.concatenate([rest, [0, 0, 0, budget]]),
            np.concatenate([work * is_short, np.zeros(4)]),
            np.concatenate([window_work * is_short, np.zeros(4)]),
        )
        first_s, second_s, without_s, full_s = seconds[-4:].tolist()
        without_s = 0.0 if self.prefills_alone else without_s
        prefill_s = np.where(rest > 0, seconds[:-4] - without_s, 0.0)
        in_chunks_s = whole * (full_s - without_s)
        in_chunks_s += self.times.prefill_s * work + self.times.window_prefill_s * window_work
        step_s = first_s + (each - low) * (second_s - first_s)
        encoder_s = self._encoder_s(end - new, rows)
        return Steps(
            decodes=decodes,
            step_s=step_s,
            token_s=step_s / self._tokens_per_step,
            growth_s=(second_s - first_s) / self.stages / self._tokens_per_step,
            prefill_s=np.maximum(prefill_s + np.where(is_short, 0.0, in_chunks_s), 0.0) + encoder_s,
            encoder_s=float(encoder_s.mean()),
            chunks=whole + (rest > 0),
            share=new / budget,
        )

    def _encoder_s(self, cached: IntArray, rows: Rows) -> FloatArray:
        """For the images that a prompt has behind its cached tokens, all of them in one pass."""
        if self._images is None:
            return np.zeros(len(cached))
        images, times = self._images.num_behind(cached, rows), self.times
        each_s = self._images.patches * times.encoder_patch_s + self._images.pairs * times.encoder_pair_s
        together_s = np.maximum(times.encoder_start_s + images * each_s, times.encoder_floor_s)
        return np.where(images > 0, together_s, 0.0)

    def _chunk(self, decodes: int) -> int:
        """The longest chunk of prefill beside so many decodes."""
        left = self.config.token_budget - decodes * (self._scheduled_per_step + self.config.draft_slots)
        return max(min(left, self.config.long_prefill_token_threshold or left), 1)

    def _step_s(self, decodes: IntArray, prefill: IntArray, work: FloatArray, window_work: FloatArray) -> FloatArray:
        """Steps of so many decodes beside so much prefill."""
        decoded = decodes * self._scheduled_per_step
        tokens = np.minimum(decoded + prefill, len(self.times.decode) - 1)
        sequences = np.minimum(decodes + (prefill > 0), len(self.times.sampling) - 1)
        found = self.times.steps_s(
            {
                "tokens": tokens,
                "sequences": sequences,
                "sampled": sequences,
                "decode_context": decodes * self.context,
                "window_context": decodes * self.window_context,
                "prefill_tokens": prefill,
                "prefill_work": work,
                "window_prefill_work": window_work,
                "adapters": self._num_adapters(sequences),
            }
        )
        return found + self.times.shared(tokens + (self.ranks - 1.0) * decoded) if self.ranks > 1 else found

    def _num_adapters(self, sequences: IntArray) -> FloatArray:
        """LoRA adapters among so many sequences, on average."""
        found = (1 - (1 - self._adapter_shares) ** sequences[:, None]).sum(axis=1)
        return np.asarray(np.minimum(found, self._max_loras))


def _attended(start: IntArray, end: IntArray) -> FloatArray:
    """Positions attended to by tokens [start, end)."""
    work: FloatArray = (end - start) * (start + end) * 0.5
    return work


def _attended_in_window(start: IntArray, end: IntArray, window: int) -> FloatArray:
    inside = np.clip(window, start, end)
    work: FloatArray = _attended(start, inside) + (end - inside) * float(window)
    return work
