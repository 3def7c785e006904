"""Python's `random.shuffle`, compiled: SGLang's policy `random` draws from it.

Its generator is the Mersenne Twister MT19937 (M. Matsumoto, T. Nishimura, ACM TOMACS 8 (1998) 3-30).
"""

from simulator.core.jit import kernel, rare_kernel
from simulator.core.types import Generator, QueueOrder

NUM_WORDS, MIDDLE = 624, 397  # of a generator's state, which ends with the place of the next word
UPPER, LOWER, MATRIX = 0x80000000, 0x7FFFFFFF, 0x9908B0DF


@rare_kernel
def shuffle(words: Generator, order: QueueOrder, count: int) -> None:
    """Bring the first `count` into a random order."""
    for last in range(count - 1, 0, -1):
        place = below(words, last + 1)
        order[last], order[place] = order[place], order[last]


@kernel
def below(words: Generator, limit: int) -> int:
    """A random number in [0, limit): as many bits as `limit` has, until they are below it."""
    num_bits = 0
    while limit >> num_bits > 0:
        num_bits += 1
    drawn = limit
    while drawn >= limit:
        drawn = next_word(words) >> (32 - num_bits)
    return drawn


@kernel
def next_word(words: Generator) -> int:
    """32 random bits."""
    if words[NUM_WORDS] >= NUM_WORDS:
        renew(words)
    word = int(words[words[NUM_WORDS]])
    words[NUM_WORDS] += 1
    word ^= word >> 11
    word ^= (word << 7) & 0x9D2C5680
    word ^= (word << 15) & 0xEFC60000
    return word ^ (word >> 18)


@kernel
def renew(words: Generator) -> None:
    """Make the next words of the state from the last ones."""
    for place in range(NUM_WORDS):
        following = (place + 1) % NUM_WORDS
        mixed = (words[place] & UPPER) | (words[following] & LOWER)
        words[place] = words[(place + MIDDLE) % NUM_WORDS] ^ (mixed >> 1) ^ (MATRIX * (mixed & 1))
    words[NUM_WORDS] = 0
