"""What speculation is worth in seconds: from three measured costs to the best draft length.

A target call that checks K drafted tokens evaluates K + 1 tokens in one batch and costs
`batch(K + 1)`; drafting costs `draft` for each token. With acceptance probability a at every
position, a call emits on average

    1 + a + ... + a^K  tokens            (arXiv 2211.17192, equation 1)

and the speed-up over plain decoding is that number, times the cost of a single token, over
batch(K + 1) + K draft. Acceptance comes from the models and the rule, costs from the machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np


def expected_tokens(acceptance: float | Sequence[float], k: int) -> float:
    """Mean tokens per target call, recovered or bonus token included.

    Args:
        acceptance: probability that a tested token is kept, in [0, 1]; one number for all
            positions, or one per position (at least k of them).
        k: drafted tokens per call, >= 0.
    """
    if isinstance(acceptance, (int, float)):
        rates = np.full(k, float(acceptance))
    else:
        rates = np.asarray(acceptance, dtype=np.float64)[:k]
    if len(rates) < k:
        raise ValueError(f"acceptance has {len(rates)} positions, k = {k} needs as many")
    if not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError(f"acceptance must be in [0, 1], got {acceptance!r}")
    return 1.0 + float(np.sum(np.cumprod(rates)))


@dataclass(frozen=True)
class CostModel:
    """Measured costs of one target and draft on one machine, in any unit of time.

    Args:
        batch: cost of one target call by the number of tokens that it evaluates, 1 among them; what
            lies between is interpolated, what lies beyond goes on as the last two points do.
        draft: cost of drafting one token, 0 for n-gram lookup.
        overhead: cost per target call of everything else (sampling, verification).
    """

    batch: Mapping[int, float]
    draft: float = 0.0
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Check the costs."""
        if 1 not in self.batch or len(self.batch) < 2:
            raise ValueError(
                f"batch must have the cost of 1 token and of a larger batch, got {dict(self.batch)}"
            )
        if min(self.batch.values()) <= 0 or self.draft < 0 or self.overhead < 0:
            raise ValueError("costs must be positive (draft and overhead may be 0)")

    def call(self, k: int) -> float:
        """Cost of one speculative target call with k drafted tokens."""
        sizes = sorted(self.batch)
        costs = [self.batch[size] for size in sizes]
        size = k + 1
        if size > sizes[-1]:
            slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
            own = costs[-1] + slope * (size - sizes[-1])
        else:
            own = float(np.interp(size, sizes, costs))
        return own + k * self.draft + self.overhead

    def speedup(self, acceptance: float | Sequence[float], k: int) -> float:
        """Predicted tokens per second over those of plain decoding."""
        single = self.batch[1] + self.overhead
        return expected_tokens(acceptance, k) * single / self.call(k)

    def best_length(self, acceptance: float | Sequence[float], most: int = 16) -> int:
        """The draft length in 0..most with the largest predicted speed-up; 0 is plain decoding."""
        if not isinstance(acceptance, (int, float)):
            most = min(most, len(acceptance))
        plain = [1.0]
        return int(np.argmax(plain + [self.speedup(acceptance, k) for k in range(1, most + 1)]))
