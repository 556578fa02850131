"""llama.cpp (GGUF models) with any acceptance rule.

>>> import cactus_rules as cr
>>> from cactus_rules.adapters.llamacpp import SpeculativeLlama
>>> llama = SpeculativeLlama("target.gguf", "requantize:Q2_K", rule=cr.Cactus(0.1), n_ctx=2048)
>>> llama.complete("Once upon a time", max_tokens=64, seed=7).text

`LlamaModel` is one model by itself: feed tokens, read logits, take tokens back. `load_backend` adds
a GPU to a CPU build of llama.cpp.
"""

from ..generation import Completion, Generation
from ..ngram import NgramDraft
from .backends import available_backends, load_backend
from .model import LlamaModel
from .options import ModelOptions
from .quantize import requantize
from .speculative import SpeculativeLlama

__all__ = [
    "Completion",
    "Generation",
    "LlamaModel",
    "ModelOptions",
    "NgramDraft",
    "SpeculativeLlama",
    "available_backends",
    "load_backend",
    "requantize",
]
