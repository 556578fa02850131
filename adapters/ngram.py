"""Drafts looked up in the text itself: what followed the same few tokens before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .drafts import ListProposal, Proposal


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramDraft:
    """Prompt lookup: proposes the tokens that followed an earlier copy of the last few tokens.

    The longest match of at most `longest` and at least `shortest` tokens counts, the latest one
    that enough tokens follow. The proposal is one-hot; it costs no model call, and is empty where
    nothing matches.
    """

    longest: int = 3
    shortest: int = 1

    def __post_init__(self) -> None:
        """Check the values."""
        if not 1 <= self.shortest <= self.longest:
            raise ValueError(
                f"shortest={self.shortest}, longest={self.longest}: give 1 <= shortest <= longest"
            )

    def propose(self, tokens: Sequence[int], count: int, step: int) -> ListProposal:
        """Propose at most `count` tokens to follow `tokens`; `step` is not used."""
        text = np.asarray(tokens, np.int64)
        for size in range(min(self.longest, len(text) - 1), self.shortest - 1, -1):
            windows = np.lib.stride_tricks.sliding_window_view(text[:-1], size)
            matches = np.flatnonzero((windows == text[-size:]).all(axis=1))
            if matches.size:
                starts = matches + size
                full = starts[starts + count <= len(text)]
                start = int(full[-1] if full.size else starts[0])
                return Proposal(text[start : start + count])
        return Proposal(text[:0])

    def rollback(self, length: int) -> None:
        """Nothing to take back: the text is given at every call."""
