"""How many tokens images become by the processors of transformers and vLLM; run by an interpreter that has both.

usage: python images_probe.py CASES.jsonl > TOKENS.jsonl

Each line of the input is `{"name", "type", "width", "height", …}`: the model's type, the image's pixels, and what of
the rule the checkpoint's files say. A line comes out for each: `{"name", "vllm", "embeddings", "length"}`, the second
the tokens that stand for the image in the prompt, or `{"name", "vllm", "refused"}`.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ.update(HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_LOGGING_LEVEL="CRITICAL")
sys.path.append(str(Path(__file__).parents[3] / "calibrate" / "interpreters" / "stand_ins"))  # where it has none

import numpy as np
import torch
import vllm
from each_case import print_each
from transformers.image_utils import SizeDict
from transformers.models.glm4v.image_processing_glm4v import smart_resize as glm_resize
from transformers.models.llama4.image_processing_llama4 import find_supported_resolutions, get_best_fit
from transformers.models.llama4.processing_llama4 import Llama4Processor
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from vllm.model_executor.models.kimi_vl import KimiVLProcessingInfo
from vllm.transformers_utils.processors.internvl import calculate_internvl_targets, get_internvl_target_ratios


def qwen(case):
    unit = case["patch"] * case["merge"]
    rows, columns = smart_resize(
        case["height"], case["width"], factor=unit, min_pixels=case["min_pixels"], max_pixels=case["max_pixels"]
    )
    return {"embeddings": (count := rows * columns // unit**2), "length": count}


def glm(case):
    unit = case["patch"] * case["merge"]
    rows, columns = glm_resize(num_frames=2, height=case["height"], width=case["width"], factor=unit)
    return {"embeddings": (count := rows * columns // unit**2), "length": count}


def internvl(case):
    tiles, _, _ = calculate_internvl_targets(
        orig_width=case["width"],
        orig_height=case["height"],
        target_ratios=get_internvl_target_ratios(1, case["max_tiles"]),
        image_size=case["tile"],
        use_thumbnail=True,
    )
    count = tiles * case["tile_tokens"]
    return {"embeddings": count, "length": count + 2}


def llama4(case):
    side = case["tile"]
    canvases = torch.tensor(find_supported_resolutions(case["max_tiles"], SizeDict(height=side, width=side)))
    height, width = (int(each) for each in get_best_fit((case["height"], case["width"]), canvases))
    text = Llama4Processor._prompt_split_image(None, (height // side, width // side), case["tile_tokens"])
    return {"embeddings": text.count("<|patch|>"), "length": text.count("<|")}


def mistral3(case):
    unit, edge = case["patch"] * case["merge"], case["longest_edge"]
    image = np.broadcast_to(np.uint8(0), (case["height"], case["width"], 3))
    height, width = get_resize_output_image_size(image, size=(edge, edge), patch_size=(unit, unit))
    rows, columns = height // unit, width // unit
    return {"embeddings": columns * rows, "length": (columns + 1) * rows}


def kimi_vl(case):
    processor = SimpleNamespace(
        patch_size=case["patch"], merge_kernel_size=(case["merge"],) * 2, in_token_limit=case["max_patches"]
    )
    info = SimpleNamespace(get_hf_processor=lambda: SimpleNamespace(image_processor=processor))
    count = KimiVLProcessingInfo.get_num_image_tokens(info, image_width=case["width"], image_height=case["height"])
    return {"embeddings": count, "length": count}


RULES = {"glm4v": glm, "internvl_chat": internvl, "kimi_vl": kimi_vl, "llama4": llama4, "mistral3": mistral3}


def answer(case):
    try:
        found = RULES.get(case["type"], qwen)(case)
    except ValueError as error:
        found = {"refused": str(error)}
    return {"name": case["name"], "vllm": vllm.__version__, **found}


if __name__ == "__main__":
    print_each(answer)
