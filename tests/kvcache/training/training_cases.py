"""Models with settings that the tests of training memory share."""

from kvcache.models.catalog import find_gpu
from validation.worked_examples.quantities import GB, GIB, LLAMA, budget, gpt, kept, layer, llama, states

__all__ = ["GB", "GIB", "H100", "LLAMA", "budget", "gpt", "kept", "layer", "llama", "states"]
H100 = find_gpu("h100-sxm")
