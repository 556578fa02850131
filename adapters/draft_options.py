"""Options of speculation that the adapters share: their defaults, their limits, their checks."""

from __future__ import annotations

from typing import Literal

from cactus_rules.adapters.values import check_integer
from cactus_rules.rules.base import check_rule

DraftSampling = Literal["sample", "greedy"]

NUM_DRAFT_TOKENS = 4
"""Most tokens drafted for one target call, unless the user says otherwise."""

MAX_SIZE_DIFFERENCE = 128
"""Sizes of one tokeniser's vocabulary differ by padding only; llama.cpp's own limit."""


def check_draft_options(
    rule: object, num_draft_tokens: object, draft_sampling: object, adaptive: object
) -> None:
    """ValueError for an option outside its range."""
    check_rule(rule)
    remedy = "; for plain decoding give no draft"
    check_integer("num_draft_tokens", num_draft_tokens, 1, remedy=remedy)
    if draft_sampling not in ("sample", "greedy"):
        raise ValueError(f"draft_sampling={draft_sampling!r} must be 'sample' or 'greedy'")
    if not isinstance(adaptive, bool):
        raise ValueError(f"adaptive={adaptive!r} must be True or False")
