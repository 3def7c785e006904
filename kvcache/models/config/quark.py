"""What a checkpoint's config says of the formats that AMD Quark packed it in.

Source: vLLM 0.33, layers/quantization/quark/quark.py (`_get_scheme_cls_from_config`, `_find_matched_config`).
"""

from collections.abc import Iterator, Mapping

from files.documents import ReadJson
from files.errors import HeadcountError
from files.names import shortened

_BLOCKS = (("fp4", "mxfp4-all"), ("fp8_e4m3", "mxfp8"))  # dtype of OCP MX weights in groups of 32 → format
_EIGHT_BITS = ("fp8_e4m3", "int8")


def quark_formats(quantization: ReadJson) -> dict[str, str]:
    """Wildcard of modules → its format; `*` stands for all that no other names. Raises HeadcountError on others."""
    listed = quantization.get("layer_quant_config") or {}
    found = {name: _format(own) for name, own in listed.items() if own.get("weight")}
    whole = quantization.get("global_quant_config") or {}
    return {**found, "*": _format(whole)} if whole.get("weight") else found


def _format(module: ReadJson) -> str:
    weight, read = module["weight"], module.get("input_tensors")
    weights = [weight] if isinstance(weight, Mapping) else list(weight)
    inputs = [read] if isinstance(read, Mapping) else list(read or ())
    found = next(_formats(weights, inputs), None)
    if found is None:
        told = ", ".join(f"{own.get('dtype')} {own.get('qscheme')}" for own in weights)
        raise HeadcountError(
            f"quantization_config: weights of quark as '{shortened(told)}' are not modelled; known: fp4 in groups of "
            "32 (MXFP4) or 16 (NVFP4), fp8_e4m3, int8 with int8 inputs, int4"
        )
    return found


def _formats(weights: list[ReadJson], inputs: list[ReadJson]) -> Iterator[str]:
    """The format that vLLM takes first; none where it takes none."""
    weight, kind = weights[0], (weights[0].get("dtype"), weights[0].get("qscheme"))
    if len(weights) == 2:
        if kind == ("fp4", "per_group") and weight.get("group_size") == 16 and weights[1].get("dtype") == "fp8_e4m3":
            yield "nvfp4"
        return
    read = inputs[0].get("dtype") if inputs else None
    scheme = {"per_tensor": "fp8-tensor", "per_channel": "fp8"}.get(str(kind[1]))
    if kind[0] in _EIGHT_BITS and kind[0] == read and scheme:
        yield scheme if kind[0] == "fp8_e4m3" else "int8"
    if kind == ("fp8_e4m3", "per_block") and weight.get("block_size") == [128, 128]:
        yield "fp8-block"
    if kind[0] in ("int4", "uint4") and read is None and weight.get("group_size"):
        size = "" if weight["group_size"] == 128 else f"-g{weight['group_size']}"
        yield ("w4a16" if weight.get("symmetric") else "awq") + size
    if kind[1] == "per_group" and weight.get("group_size") == 32 and weight.get("scale_format") == "e8m0":
        yield from (name for dtype, name in _BLOCKS if dtype == kind[0])
