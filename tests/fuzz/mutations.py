"""Small damage to what people and programs write: at the level of bytes, of words and of whole structures."""

import random
import re
from collections.abc import Callable

NASTY = (
    "nan", "NaN", "-inf", "Infinity", "1e400", "-1", "0", "-0.0", "0.5", "1e-300", "1e300", "1e9", "2147483648",
    "9223372036854775808", "1" * 400, "1" * 5000, "-" * 3000 + "1", "[]", "{}", "[[1]]", '{"a": 1}', "null", "None",
    "true", '""', '"x"', "'", '"', "{", "]", ",", ":", "=", "x" * 100_000, "\u202e", "é\u0301" * 50, "${HOME}", "%s%n",
    "../../etc/passwd", "sys:exit", "{1, 2}", "!!python/name:os.system", "*a", "&a", "<script>", "0x10",
    "1_000", "１２",
)  # fmt: skip
_WORD = re.compile(r"-?\d[\d.eE+_-]*|\"[^\"\n]*\"|'[^'\n]*'|[A-Za-z_][\w-]*|[\[\]{}:=,]")
_NUMBER = re.compile(r"(?<![\w.])-?\d+(\.\d+)?(e[+-]?\d+)?(?![\w.])")

Mutation = Callable[[random.Random, bytes], bytes]


def _flipped(rng: random.Random, raw: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(rng.choice((1, 1, 3, 20))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _cut(rng: random.Random, raw: bytes) -> bytes:
    return raw[: rng.randrange(len(raw))]


def _without_a_part(rng: random.Random, raw: bytes) -> bytes:
    start = rng.randrange(len(raw))
    return raw[:start] + raw[start + rng.randrange(1, 40) :]


def _part_twice(rng: random.Random, raw: bytes) -> bytes:
    start = rng.randrange(len(raw))
    part = raw[start : start + rng.randrange(1, 200)]
    return raw[:start] + part * rng.choice((2, 2, 50)) + raw[start:]


def _line_moved(rng: random.Random, raw: bytes) -> bytes:
    lines = raw.split(b"\n")
    line = lines.pop(rng.randrange(len(lines)))
    for _ in range(rng.choice((0, 1, 2))):
        lines.insert(rng.randrange(len(lines) + 1), line)
    return b"\n".join(lines)


def _word_replaced(rng: random.Random, raw: bytes) -> bytes:
    text = raw.decode("utf-8", errors="replace")
    words = list(_WORD.finditer(text))
    for word in sorted(
        rng.sample(words, min(len(words), rng.choice((1, 1, 1, 2, 5)))), key=lambda found: -found.start()
    ):
        nasty = rng.choice((*NASTY, rng.choice(words)[0]))
        if word[0].startswith('"') and not nasty.startswith('"') and rng.random() < 0.3:
            nasty = f'"{nasty}"'
        text = text[: word.start()] + nasty + text[word.end() :]
    return text.encode("utf-8", errors="replace")


def _number_changed(rng: random.Random, raw: bytes) -> bytes:
    """What still parses, so that later checks are reached."""
    text = raw.decode("utf-8", errors="replace")
    numbers = list(_NUMBER.finditer(text))
    if not numbers:
        return raw
    number = rng.choice(numbers)
    factor = rng.choice((-1.0, 0.0, 0.5, 2.0, 10.0, 1e3, 1e6, 1e12, 1e300, 1e-9))
    found = max(-1e15, min(float(number[0]), 1e15))
    changed = rng.choice(
        (f"{found * factor:g}", f"{int(found * min(factor, 1e12))}", f"{found + rng.choice((-1, 1)):g}")
    )
    return (text[: number.start()] + changed + text[number.end() :]).encode("utf-8", errors="replace")


def _nested(rng: random.Random, raw: bytes) -> bytes:
    place = rng.randrange(len(raw))
    opening, closing = rng.choice(((b"[", b"]"), (b'{"a":', b"}"), (b"(", b")"), (b"- ", b"")))
    depth = rng.choice((60, 2000, 100_000))
    return raw[:place] + opening * depth + closing * rng.choice((0, depth)) + raw[place:]


def _encoded(rng: random.Random, raw: bytes) -> bytes:
    text = raw.decode("utf-8", errors="replace")
    return rng.choice((
        lambda: b"\xef\xbb\xbf" + raw,
        lambda: text.encode("utf-16"),
        lambda: text.replace("\n", "\r\n").encode(),
        lambda: text.replace("\n", "\r").encode(),
        lambda: raw + b"\0" * 100,
        lambda: b"\x1f\x8b" + raw,
        lambda: raw * 50,
        lambda: b"",
        lambda: b" \n" * 1000,
    ))()  # fmt: skip


MUTATIONS: tuple[Mutation, ...] = (
    _number_changed, _number_changed, _number_changed, _number_changed, _word_replaced, _word_replaced, _word_replaced,
    _flipped, _cut, _without_a_part, _part_twice, _line_moved, _nested, _encoded,
)  # fmt: skip


def mutated(rng: random.Random, raw: bytes) -> bytes:
    """The same content with one to three kinds of damage."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if raw:
            raw = rng.choice(MUTATIONS)(rng, raw)
    return raw[:2_000_000]
