"""How much of their longest answers running requests are expected to write.

Read from SGLang 0.5.23: `srt/managers/scheduler_components/new_token_ratio_tracker.py`.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from simulator.engines.sglang.engine import RETRACT_DECODE_STEPS

if TYPE_CHECKING:
    from simulator.engines.sglang.request import Request

_INIT, _MIN_FACTOR, _DECAY_STEPS = 0.7, 0.14, 600  # SGLANG_INIT_NEW_TOKEN_RATIO and its neighbours in `srt/environ.py`


class NewTokenRatio:
    """Falls from `init` to `min` while decoding goes well; a retraction sets it by what is running."""

    def __init__(self, schedule_conservativeness: float) -> None:
        self.init = min(_INIT * schedule_conservativeness, 1.0)
        self.min = min(self.init * _MIN_FACTOR, 1.0)
        self.decay = (self.init - self.min) / _DECAY_STEPS
        self.current = self.init

    def decay_step(self) -> None:
        """After a decode batch that needed no retraction."""
        self.current = max(self.current - self.decay, self.min)

    def reset(self) -> None:
        """When the engine is idle."""
        self.current = self.init

    def after_retraction(self, running: Sequence["Request"]) -> None:
        """As if each request that stays wrote RETRACT_DECODE_STEPS more."""
        written = sum(request.num_output_tokens for request in running) + RETRACT_DECODE_STEPS * len(running)
        self.current = min(1.0, written / (sum(request.max_new_tokens for request in running) + 1))
