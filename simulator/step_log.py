"""What each `schedule()` call decided, read from the core's log."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_STEP, _FINISHED = -3, -4


@dataclass(kw_only=True)
class StepRecord:
    """One `schedule()` call of one replica; state is as right after it, `finished` as before the next one."""

    replica: int
    step: int
    scheduled: dict[int, int]
    preempted: list[int]
    free_blocks: int
    running: int
    waiting: int
    embeddings: int = 0  # of the images that are encoded
    free_slots: int = 0  # of the encoder's cache
    finished: list[int] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        encoder = {"embeddings": self.embeddings} if self.embeddings else {}
        return encoder | {
            "step": self.step,
            "scheduled": {str(request): tokens for request, tokens in self.scheduled.items()},
            "preempted": self.preempted,
            "finished": self.finished,
            "free_blocks": self.free_blocks,
            "running": self.running,
            "waiting": self.waiting,
        }


def read_log(words: NDArray[np.int32], num_requests: int) -> list[StepRecord]:
    """The log's steps in time order; who finished before an engine's first is lost to the caller's last step.

    Rows beyond `num_requests` are of the same requests at other engines.
    """
    return list(_attach_finished(reversed(list(_read_backwards(words.tolist(), num_requests)))))


def _read_backwards(words: list[int], num_requests: int) -> Iterator[StepRecord | tuple[int, int]]:
    """Entries end in a marker, so they are read from the end; a pair is a finished request and its engine."""
    place = len(words)
    while place > 0:
        place -= 1
        if words[place] == _FINISHED:
            place -= 2
            yield words[place] % num_requests, words[place + 1]
            continue
        assert words[place] == _STEP, "the step log lost its alignment"
        embeddings, free_slots, count, num_preempted, free, running, waiting, step, replica = words[place - 9 : place]
        place -= 9 + 2 * count
        pairs = words[place : place + 2 * count]
        place -= num_preempted
        yield StepRecord(
            replica=replica,
            step=step,
            scheduled={row % num_requests: tokens for row, tokens in zip(pairs[::2], pairs[1::2], strict=True)},
            preempted=[row % num_requests for row in words[place : place + num_preempted]],
            free_blocks=free,
            running=running,
            waiting=waiting,
            embeddings=embeddings,
            free_slots=free_slots,
        )


def _attach_finished(entries: Iterator[StepRecord | tuple[int, int]]) -> Iterator[StepRecord]:
    latest: dict[int, StepRecord] = {}  # by engine
    for entry in entries:
        if isinstance(entry, StepRecord):
            latest[entry.replica] = entry
            yield entry
        elif entry[1] in latest:
            latest[entry[1]].finished.append(entry[0])
