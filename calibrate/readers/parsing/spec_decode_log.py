"""What a vLLM server logs of its draft tokens: `SpecDecoding metrics: …`, every ten seconds.

Written by vllm/v1/spec_decode/metrics.py. A line is of the time since the line before: sums are exact, and shares by
position are weighted by the drafts of each line, which follow from its accepted tokens and its mean acceptance length.
"""

import numpy as np

from calibrate.readers.parsing.log_text import log_pattern

_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,9})?)"
MARK = log_pattern("SpecDecoding metrics:")
_LINE = log_pattern(
    rf"SpecDecoding metrics: [^\n]{{0,80}}?Mean acceptance length: {_NUMBER},([^\n]{{0,300}}?)"
    rf"Per-position acceptance rate: ((?:{_NUMBER} ,? ){{1,64}})"
)
_ACCEPTED = log_pattern(rf"Accepted: {_NUMBER} tokens")
_SHARE = log_pattern(r"[0-9]\.[0-9]{1,4}")


def spec_decode_figures(text: str) -> dict[str, float]:
    """Tokens per step, and the share of drafts whose token at each position, from 1, was accepted; none if none is."""
    weights, lengths, shares = list[float](), list[float](), list[list[float]]()
    for line in _LINE.finditer(text):
        told = _ACCEPTED.search(line[2])
        length, accepted = float(line[1]), float(told[1]) if told else 0.0
        weights.append(accepted / (length - 1) if accepted and length > 1 else 1.0)
        lengths.append(length)
        shares.append([float(share) for share in _SHARE.findall(line[3])])
    positions = min(map(len, shares), default=0)
    if not positions:
        return {}
    found = {"spec_decode_acceptance_length": float(np.average(lengths, weights=weights))}
    mean = np.average([line[:positions] for line in shares], axis=0, weights=weights)
    return found | {f"spec_decode_acceptance_rate_at_{n}": float(share) for n, share in enumerate(mean, start=1)}


def spec_decode_note(figures: dict[str, float]) -> str:
    """How to ask with them."""
    shares = [f"{value:.3f}" for name, value in figures.items() if name.startswith("spec_decode_acceptance_rate_at_")]
    return f'acceptance by position, for --speculative-config: "per_position_acceptance_rate": [{", ".join(shares)}]'
