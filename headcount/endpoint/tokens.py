"""Text to token ids and back: by an estimate, or with a model's own tokenizer.json."""

from collections.abc import Sequence
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from files.errors import HeadcountError
from files.reading import shown
from workloads.requests import IntArray

BYTES_PER_TOKEN: Final = 4
"""Of text in UTF-8. OpenAI: "1 token ~= 4 chars in English" (help.openai.com, "What are tokens and how to count
them?"); other scripts take two to four bytes a character, and more tokens."""
WORDS: Final = (
    "the", "and", "for", "are", "but", "not", "you", "all", "any", "can", "had", "her", "was",
    "one", "our", "out", "day", "get", "has", "him", "his", "how", "man", "new", "now", "old",
    "see", "two", "way", "who", "did", "its", "let", "put", "say", "she", "too", "use",
)  # fmt: skip
_HEADER, _END, _BEGIN = 1 << 40, 1 << 41, 1 << 42  # special tokens of the estimate, beyond those of text
_HEADER_TOKENS: Final = 4
"""Before each message, after which one ends it, and one begins the text: Llama 3's prompt format
(llama.com/docs/model-cards-and-prompt-formats/meta-llama-3)."""
_FORMATS: Final = {  # a special token that a tokenizer has: how a message is written with it
    "<|start_header_id|>": ("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>"),
    "<|im_start|>": ("<|im_start|>{role}\n", "<|im_end|>\n"),
}
Message = tuple[str, str]  # role, text


class Tokenizer(Protocol):
    """How text is counted, and what answers are made of."""

    @property
    def words(self) -> Sequence[str]:
        """Pieces of text that are one token each, and stay so beside each other."""

    @property
    def word_tokens(self) -> IntArray: ...

    def encode(self, text: str) -> IntArray: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def chat(self, messages: Sequence[Message], *, is_answered: bool) -> IntArray:
        """A conversation; `is_answered`: it ends with the header of an answer to come."""


class EstimatedTokens:
    """Four bytes are a token, and its id: equal text has equal ids, and ids lead back to their text."""

    words = tuple(f" {word}" for word in WORDS)

    @cached_property
    def word_tokens(self) -> IntArray:
        return self.encode("".join(self.words))

    def encode(self, text: str) -> IntArray:
        data = text.encode("utf-8", "replace")
        missing = -len(data) % BYTES_PER_TOKEN
        tokens = np.frombuffer(data + bytes(missing), "<u4").astype(np.int64)
        if missing:
            tokens[-1] += missing << 32
        return tokens

    def decode(self, tokens: Sequence[int]) -> str:
        pieces = []
        for token in tokens:
            if token < _HEADER:
                missing = min(token >> 32, BYTES_PER_TOKEN)
                pieces.append((token & 0xFFFFFFFF).to_bytes(4, "little")[: BYTES_PER_TOKEN - missing])
        return b"".join(pieces).decode("utf-8", "replace")

    def chat(self, messages: Sequence[Message], *, is_answered: bool) -> IntArray:
        pieces: list[object] = [[_BEGIN]]
        for role, text in messages:
            pieces += [self._header(role), self.encode(text), [_END]]
        return np.concatenate([*pieces, self._header("assistant") if is_answered else []]).astype(np.int64)

    def _header(self, role: str) -> list[int]:
        number = int.from_bytes(role.encode()[:4], "little")
        return [_HEADER + number] * _HEADER_TOKENS


class FileTokens:
    """A model's tokenizer.json, read by the library `tokenizers`. Raises HeadcountError for a file that is none."""

    def __init__(self, path: Path) -> None:
        if find_spec("tokenizers") is None:
            raise HeadcountError(
                "--tokenizer needs the library tokenizers; install headcount[tokenizer], or leave it out"
            )
        from tokenizers import Tokenizer as Read  # noqa: PLC0415  an optional extra

        try:
            self._tokenizer = Read.from_str(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise HeadcountError(f"--tokenizer {shown(path)}: {error.strerror or error}") from None
        except Exception as error:  # the library raises plain ones
            raise HeadcountError(f"--tokenizer {shown(path)} is no tokenizer.json: {error}") from None
        found = {word: self._ids(f" {word}") for word in WORDS}
        single = {f" {word}": ids[0] for word, ids in found.items() if len(ids) == 1} or {"a": self._ids("a")[0]}
        self.words = tuple(single)
        self.word_tokens = np.array(list(single.values()), np.int64)
        formats = [how for token, how in _FORMATS.items() if self._tokenizer.token_to_id(token) is not None]
        self._header, self._footer = formats[0] if formats else ("{role}: ", "\n")

    def encode(self, text: str) -> IntArray:
        return np.array(self._tokenizer.encode(text).ids, np.int64)

    def decode(self, tokens: Sequence[int]) -> str:
        size = self._tokenizer.get_vocab_size()
        return str(self._tokenizer.decode([token for token in tokens if token < size], skip_special_tokens=False))

    def chat(self, messages: Sequence[Message], *, is_answered: bool) -> IntArray:
        """Message by message, so that a conversation begins with the tokens of its earlier turns."""
        found: list[int] = self.encode("").tolist()
        for role, text in messages:
            found += self._ids(self._header.format(role=role)) + self._ids(text) + self._ids(self._footer)
        return np.array(found + (self._ids(self._header.format(role="assistant")) if is_answered else []), np.int64)

    def _ids(self, text: str) -> list[int]:
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return found
