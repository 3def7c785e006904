"""What a request is answered with: filler, as long as it was asked to be or as answers are."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np

from files.documents import Json
from headcount.endpoint.json_text import json_text
from headcount.endpoint.tokens import Tokenizer
from workloads.distributions import Distribution, token_counts
from workloads.requests import IntArray


@dataclass(frozen=True, kw_only=True)
class Asked:
    """How long an answer may be, by the names of OpenAI's API and vLLM's."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    schema: Json | None = None  # of JSON; None: text
    choice: int = 0  # which of the answers to this prompt


@dataclass(frozen=True, kw_only=True)
class ChatAnswer:
    """An answer, known before its first token is out."""

    words: list[str]  # one a token
    tokens: IntArray
    finish_reason: Literal["stop", "length"]
    stop_reason: str | None = None  # the text that ended it


class Answers:
    """Draws answers: the same prompt has the same answer.

    A length is drawn from `lengths`, unless the request says how many tokens it wants with `ignore_eos`.
    """

    def __init__(self, tokenizer: Tokenizer, lengths: Distribution, *, seed: int = 0) -> None:
        self._tokenizer, self._lengths = tokenizer, lengths
        self._key = seed.to_bytes(16, "little", signed=True)

    def draw(self, prompt: IntArray, asked: Asked) -> ChatAnswer:
        content = prompt.tobytes() + (asked.choice.to_bytes(8, "little") if asked.choice else b"")
        drawn = int.from_bytes(blake2b(content, digest_size=8, key=self._key).digest(), "little")
        length, is_whole = asked.max_tokens, False
        if not asked.ignore_eos:
            u = np.array([(drawn >> 11) / 2**53])
            natural = max(int(token_counts(self._lengths, u)[0]), asked.min_tokens, 1)
            if natural <= asked.max_tokens:
                length, is_whole = natural, True
        places = (drawn % 7919 + np.arange(length) * (drawn % 5 + 1)) % len(self._tokenizer.words)
        words = [self._tokenizer.words[place] for place in places.tolist()]
        if asked.schema is not None:
            return self._json(asked.schema, words, asked.max_tokens)
        answer = ChatAnswer(
            words=words,
            tokens=self._tokenizer.word_tokens[places],
            finish_reason="stop" if is_whole else "length",
        )
        return _stopped(answer, asked) if asked.stop else answer

    def _json(self, schema: Json, words: Sequence[str], most: int) -> ChatAnswer:
        """About as many tokens of JSON as the text would have; more where the schema needs them, cut at `most`."""
        frame = len(self._tokenizer.encode(json_text(schema, "")))
        text = json_text(schema, "".join(words[: max(len(words) - frame, 0)]).strip())
        tokens = self._tokenizer.encode(text)
        pieces = [self._tokenizer.decode([token]) for token in tokens.tolist()]
        if "".join(pieces) != text:  # a tokenizer whose tokens have no text of their own
            pieces = [text, *[""] * (len(tokens) - 1)]
        is_whole = len(tokens) <= most
        return ChatAnswer(words=pieces[:most], tokens=tokens[:most], finish_reason="stop" if is_whole else "length")


def _stopped(answer: ChatAnswer, asked: Asked) -> ChatAnswer:
    """The answer up to the first text in `stop`, which is left out."""
    text = "".join(answer.words)
    ends = np.cumsum([len(word) for word in answer.words])
    first = int(ends[asked.min_tokens - 1]) if 0 < asked.min_tokens <= len(ends) else 0
    found = [(place, stop) for stop in asked.stop if (place := text.find(stop, first)) >= 0]
    if not found:
        return answer
    place, stop = min(found)
    length = int(np.searchsorted(ends, place + len(stop))) + 1
    words, left = [], place
    for word in answer.words[:length]:
        words.append(word[:left])
        left = max(left - len(word), 0)
    return ChatAnswer(words=words, tokens=answer.tokens[:length], finish_reason="stop", stop_reason=stop)
