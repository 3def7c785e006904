"""What `max_model_len` makes of a workload: conversations cut, messages and answers shortened, prompts refused."""

from dataclasses import asdict, dataclass
from typing import Final

import numpy as np

from workloads.distributions import RoundedUp, token_counts
from workloads.population import Population, fitted
from workloads.randomness import stream
from workloads.requests import RequestTable

CONVERSATIONS_DRAWN: Final = 20_000  # one standard error of a share of 1 % is then 0.07 %
TURNS_DRAWN: Final = 400_000  # at most: fewer conversations where they have many turns


@dataclass(frozen=True, kw_only=True)
class TrafficEffects:
    """Shares from 0 to 1; None where the kind of load has no such thing."""

    max_model_len: int
    conversations_cut: float | None = None
    """Of a population's conversations: they end before their last turn, which would not fit."""
    messages_shortened: float | None = None
    """Of a population's turns."""
    prompts_refused: float | None = None
    """Of recorded requests: the prompt leaves no room for a token."""
    answers_cut: float | None = None
    """Of all turns or requests: the answer ends early."""

    @property
    def worst(self) -> float:
        """The largest share."""
        shares = (self.conversations_cut, self.messages_shortened, self.prompts_refused, self.answers_cut)
        return max(share or 0.0 for share in shares)

    def to_json(self) -> dict[str, float | None]:
        return asdict(self)


def traffic_effects(load: Population | RequestTable, max_model_len: int, *, seed: int = 0) -> TrafficEffects:
    """What a limit does to a load: exact for recorded requests, drawn for a population, the same for the same seed."""
    if isinstance(load, RequestTable):
        return _of_requests(load, max_model_len)
    load.check_room(max_model_len)
    room = max_model_len - load.system_prompt_tokens
    num_turns = _turns_of_conversations(load, seed)
    user, output = (
        token_counts(distribution, stream(seed, purpose).random(int(num_turns.sum())))
        for distribution, purpose in ((load.user_tokens, "user_tokens"), (load.output_tokens, "output_tokens"))
    )
    message, answer = fitted(user, output, room)
    starts = np.cumsum(num_turns) - num_turns
    said = np.cumsum(message + answer)  # at each turn's end, over all conversations
    before = np.repeat(said[starts] - (message + answer)[starts], num_turns)
    return TrafficEffects(
        max_model_len=max_model_len,
        conversations_cut=float(np.logical_or.reduceat(said - before > room, starts).mean()),
        messages_shortened=float((message < user).mean()),
        answers_cut=float((answer < output).mean()),
    )


def _turns_of_conversations(population: Population, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    whole = RoundedUp(inner=population.turns)
    count = int(np.clip(TURNS_DRAWN / whole.mean(), 1, CONVERSATIONS_DRAWN))
    turns = whole.quantile(stream(seed, "turns").random(count)).astype(np.int64)
    kept = int(np.searchsorted(np.cumsum(turns), 2 * TURNS_DRAWN))
    return turns[: max(kept, 1)]


def _of_requests(table: RequestTable, max_model_len: int) -> TrafficEffects:
    room = max_model_len - table.prompt_tokens.astype(np.int64)
    refused = room < 1
    return TrafficEffects(
        max_model_len=max_model_len,
        prompts_refused=float(refused.mean()),
        answers_cut=float((~refused & (table.output_tokens > room)).mean()),
    )
