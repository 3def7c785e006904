"""ShareGPT and other lists of conversations, which hold text and no tokens."""

from pathlib import Path
from typing import Final, NoReturn

from files.reading import InputError, shown
from workloads.traces.trace_format import TraceFormat


def read(path: Path, _block_size: int | None, _num_requests: int | None) -> NoReturn:
    """Raises InputError: what to do instead."""
    raise InputError(
        f"{shown(path)}: holds conversations as text, without numbers of tokens or times; count prompt and answer "
        "tokens with the model's tokenizer, and give a CSV with --columns prompt=…,output=…,session=…"
    )


FORMAT: Final = TraceFormat(
    name="sharegpt",
    looks_like="a JSON list with conversations or messages (refused: it holds no tokens)",
    recognises=lambda head: head.lstrip().startswith("[") and ('"conversations"' in head or '"messages"' in head),
    read=read,
    source="ShareGPT_V3_unfiltered_cleaned_split.json; vLLM, validation/multi_turn",
)
