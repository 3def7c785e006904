"""What vLLM's scheduler needs to know of images: the encoder's budget and cache, and what is not simulated."""

from dataclasses import dataclass, replace

from files.errors import HeadcountError
from kvcache.models.config.images import require_image_rule
from kvcache.releases import IMAGES_AS_READ
from kvcache.shape.architecture import Architecture
from kvcache.shape.images import SmartResize
from simulator.engines.vllm.arguments import EngineArgs
from simulator.engines.vllm.modalities import ModalityLimits
from workloads.images import ImageUse, RequestImages

IMAGE = "image"


@dataclass(frozen=True, kw_only=True)
class EncoderLimits:
    """What bounds a step's encoder inputs, in embeddings, under vLLM's names."""

    max_num_encoder_input_tokens: int  # of one step
    encoder_cache_size: int
    images_per_prompt: int | None = None  # --limit-mm-per-prompt; None: no limit


def encoder_limits(args: EngineArgs, architecture: Architecture) -> EncoderLimits | None:
    """Of a server that sees images; None where it loads no encoder, or its images are not simulated.

    Both are `max_num_batched_tokens`, or the largest image or video if that is more (vLLM 0.33,
    v1/core/encoder_cache_manager.py, compute_mm_encoder_budget). Videos of all families but Qwen2.5-VL are taken to be
    no larger than images.
    """
    rule = architecture.image_rule
    if rule is None or args.is_text_only(architecture) or not IMAGES_AS_READ.holds_in(args.vllm_version):
        return None
    assert args.max_num_batched_tokens is not None, "all arguments have a value"
    limits = dict((args.limit_mm_per_prompt or ModalityLimits()).counts)
    video = 0
    if isinstance(rule, SmartResize) and limits.get("video") != 0:
        video = rule.largest_video(args.max_model_len or architecture.max_position_embeddings)
    most = max(args.max_num_batched_tokens, rule.largest, video)
    return EncoderLimits(
        max_num_encoder_input_tokens=most, encoder_cache_size=most, images_per_prompt=limits.get(IMAGE)
    )


def seen_by(use: ImageUse, architecture: Architecture) -> ImageUse:
    """Images as a model's processor makes them tokens. Raises HeadcountError where it sees none, or not known how."""
    rule = require_image_rule(architecture.image_rule, model=architecture.name, sees=bool(architecture.modalities))
    return replace(use, shape=rule.of(use.width, use.height))


def check_prompts(limits: EncoderLimits | None, images: RequestImages, features: tuple[tuple[bool, str], ...]) -> None:
    """Raise HeadcountError where the server refuses a prompt's images, or they are not simulated with its features.

    `features` say whether one is there, and what it is called.
    """
    if limits is None:
        raise HeadcountError(
            "images are simulated with vLLM's rules of release "
            f"{IMAGES_AS_READ.first} and later, and a server that loads its image encoder; leave "
            "--language-model-only, a --limit-mm-per-prompt of 0 and --vllm-version out, or the images"
        )
    for is_there, what in features:
        if is_there:
            raise HeadcountError(f"images are not simulated with {what}; leave one of them out")
    check_count(limits, images.most)
    largest = max(shape.embeddings for shape in images.shapes)
    if largest > limits.max_num_encoder_input_tokens:
        raise HeadcountError(
            f"an image has {largest:,} embeddings, and a step of the encoder takes "
            f"{limits.max_num_encoder_input_tokens:,}; raise --max-num-batched-tokens, or give a smaller --image-size"
        )


def check_count(limits: EncoderLimits, most: int) -> None:
    """Raise HeadcountError where a prompt has more images than --limit-mm-per-prompt."""
    allowed = limits.images_per_prompt
    if allowed is not None and most > allowed:
        raise HeadcountError(
            f"a prompt has {most:,} images, those of earlier turns included, and --limit-mm-per-prompt allows "
            f"{allowed:,}: vLLM refuses it; raise the limit, or give fewer images"
        )
