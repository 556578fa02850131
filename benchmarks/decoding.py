"""Timing one generation."""

from __future__ import annotations

import time

from cactus_rules.adapters.llamacpp import Generation


def tokens_per_second(generation: Generation) -> float:
    """Run a fresh generation to its end; the prompt's evaluation and the first call are left out.

    NaN for a text that ends in its first call.
    """
    next(generation, None)
    first = len(generation.completion.token_ids)
    start = time.perf_counter()
    for _ in generation:
        pass
    count = len(generation.completion.token_ids) - first
    return count / (time.perf_counter() - start) if count else float("nan")
