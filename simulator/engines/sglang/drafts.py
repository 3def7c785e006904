"""SGLang's flags of speculative decoding, and the settings that they stand for.

Read from SGLang 0.5.23: `srt/arg_groups/speculative_hook.py`, `srt/speculative/spec_info.py`.
"""

from collections.abc import Mapping
from typing import Final

from files.documents import Json
from files.errors import HeadcountError
from files.names import shortened
from simulator.engines.vllm.speculation import Speculation

FLAGS: Final = {
    "speculative-algorithm": "algorithm",
    "speculative-draft-model-path": "model",
    "speculative-draft-model": "model",
    "speculative-num-steps": "steps",
    "speculative-eagle-topk": "topk",
    "speculative-num-draft-tokens": "tokens",
}
"""SGLang's flags of speculative decoding, each with its key in this module."""
ALGORITHMS: Final = {"eagle": "EAGLE", "eagle3": "EAGLE3", "mtp": "NEXTN", "draft_model": "STANDALONE"}
"""SGLang's, by the method that drafts alike in vLLM's words."""
MOST_REQUESTS: Final = 48  # running at once where drafts are asked for and nobody says how many
_STEPS: Final = 3  # by default; a dense Llama's head drafts a tree instead


def settings_of_fields(told: Mapping[str, object]) -> Json:
    """`speculation` of a server's own fields, as it logs them; nothing where it drafts nothing."""
    given = {word: told[name] for flag, word in FLAGS.items() if told.get(name := flag.replace("-", "_")) is not None}
    return {"speculation": settings_of(given)} if "algorithm" in given else {}


def settings_of(given: Json) -> Json:
    """vLLM's object of what flags say, by the words of FLAGS. Raises HeadcountError for what is not simulated."""
    algorithm, model = given.get("algorithm"), given.get("model")
    if algorithm is None:
        raise HeadcountError("--speculative-algorithm is missing; give it, or leave the other speculative flags out")
    method = _method(str(algorithm), None if model is None else str(model))
    topk, steps = given.get("topk", 1), given.get("steps")
    if steps is None and method in ("eagle", "eagle3"):
        raise HeadcountError(
            "--speculative-num-steps is missing: SGLang chooses it by the model, for Llama a tree (5, with "
            "--speculative-eagle-topk 4 and --speculative-num-draft-tokens 8), else a chain (3, with topk 1)"
        )
    if method == "draft_model":
        raise HeadcountError(
            "--speculative-algorithm STANDALONE: the flags do not say how often its draft tokens are accepted; leave "
            "them out, and give --speculative-config with method draft_model, model, num_speculative_tokens and "
            "acceptance_rate"
        )
    settings: Json = {"method": method, "num_speculative_tokens": _STEPS if steps is None else steps}
    if topk != 1:  # of a chain, SGLang sets the number itself
        settings |= {"topk": topk, "num_draft_tokens": given.get("tokens")}
    return settings if model is None or method == "mtp" else settings | {"model": model}


def _method(algorithm: str, model: str | None) -> str:
    """NEXTN is another name of EAGLE; without a model of its own, the target's modules draft."""
    name = algorithm.upper()
    if name in ("EAGLE", "NEXTN") and (model is None or name == "NEXTN" or "nextn" in model.lower()):
        return "mtp"
    known = {algorithm: method for method, algorithm in ALGORITHMS.items()}
    if name not in known:
        raise HeadcountError(
            f"--speculative-algorithm {shortened(algorithm)} is not simulated with SGLang; there are "
            f"{', '.join(sorted(known))}"
        )
    return known[name]


def words_of(speculation: Speculation) -> list[str]:
    """SGLang's flags of it."""
    words = ["--speculative-algorithm", ALGORITHMS[speculation.drafter or ""]]
    if speculation.model is not None and speculation.drafter != "mtp":
        words += ["--speculative-draft-model-path", speculation.model]
    counts = (
        ("num-steps", speculation.num_speculative_tokens),
        ("eagle-topk", speculation.topk),
        ("num-draft-tokens", speculation.width),
    )
    return words + [word for name, count in counts for word in (f"--speculative-{name}", str(count))]


def check(speculation: Speculation, *, has_groups: bool = False) -> None:
    """Raise HeadcountError for drafts that are not simulated with SGLang, or that it refuses with attention groups."""
    if has_groups and speculation.method == "draft_model":
        raise HeadcountError("SGLang refuses a draft model with --attn-dp-size; leave one of them out")
    if speculation.drafter not in ALGORITHMS:
        raise HeadcountError(
            f"speculative decoding by {speculation.name or speculation.method} is not simulated with SGLang; choose "
            f"one of {', '.join(ALGORITHMS)}"
        )
    if speculation.parallel_drafting or speculation.draft_tensor_parallel_size is not None:
        raise HeadcountError(
            "parallel_drafting and draft_tensor_parallel_size are vLLM's; leave them out with --engine sglang"
        )
