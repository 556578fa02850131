"""Loading options and requests that the tests of `SpeculativeLlama` share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import tiny_gguf

if TYPE_CHECKING:
    from cactus_rules.adapters.llamacpp import SpeculativeLlama

EXACT = {"n_ctx": 256, "n_threads": 1, "type_k": "f32", "type_v": "f32", "flash_attn": False}
NO_END = {tiny_gguf.EOS: -np.inf, tiny_gguf.TURN: -np.inf}
PROMPT = [tiny_gguf.BOS, *b"once"]
Opener = Callable[..., "SpeculativeLlama"]
