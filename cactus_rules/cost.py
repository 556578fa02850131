"""What speculation is worth in seconds: from three measured costs to the best draft length.

A target call that checks K drafted tokens evaluates K + 1 tokens in one batch and costs
`batch(K + 1)`; drafting costs `draft` for each token. With acceptance probability a at every
position, a call emits on average

    1 + a + ... + a^K  tokens            (arXiv 2211.17192, equation 1)

and the speed-up over plain decoding is that number, times the cost of a single token, over
batch(K + 1) + K draft. Acceptance comes from the models and the rule, costs from the machine.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cactus_rules._validate import is_integer


def expected_tokens(acceptance: float | Sequence[float], k: int) -> float:
    """Mean tokens per target call, recovered or bonus token included.

    Args:
        acceptance: probability that a tested token is kept, in [0, 1]; one number for all
            positions, or one per position (at least k of them).
        k: drafted tokens per call, >= 0.

    Raises:
        ValueError: an acceptance outside [0, 1] or for too few positions, or a k that is no length.
    """
    _check_length("k", k)
    rates = _rates(acceptance)
    rates = rates[:k] if rates.ndim else np.full(k, rates)
    if len(rates) < k:
        raise ValueError(f"acceptance has {len(rates)} positions, k = {k} needs as many")
    return 1.0 + float(np.sum(np.cumprod(rates)))


def _rates(acceptance: Any) -> np.ndarray:
    """Acceptance as one number or one per position, checked."""
    try:
        rates = np.asarray(acceptance, dtype=np.float64)
    except (TypeError, ValueError):
        rates = np.array(math.nan)
    if rates.ndim > 1 or not np.all((rates >= 0) & (rates <= 1)):
        raise ValueError(
            "acceptance must be in [0, 1], one number or one per position, "
            f"got {reprlib.repr(acceptance)}"
        )
    return rates


def _check_length(name: str, value: Any) -> None:
    if not is_integer(value) or value < 0:
        raise ValueError(f"{name} must be an integer >= 0 (drafted tokens per call), got {value!r}")


def _is_cost(value: Any) -> bool:
    """Whether it is a finite number >= 0."""
    return isinstance(value, (int, float, np.number)) and bool(0 <= value < math.inf)


@dataclass(frozen=True)
class CostModel:
    """Measured costs of one target and draft on one machine, in any unit of time.

    Args:
        batch: cost of one target call by the number of tokens that it evaluates, 1 among them; what
            lies between is interpolated, what lies beyond goes on as the last two points do, but
            never falls.
        draft: cost of drafting one token, 0 for n-gram lookup.
        overhead: cost per target call of everything else (sampling, verification).
    """

    batch: Mapping[int, float]
    draft: float = 0.0
    overhead: float = 0.0

    def __post_init__(self) -> None:
        """Check the costs."""
        if not isinstance(self.batch, Mapping):
            raise ValueError(
                "batch must map the number of tokens of a call to its cost, such as "
                f"{{1: 1.0, 9: 3.8}}, got {reprlib.repr(self.batch)}"
            )
        if not all(is_integer(size) and size >= 1 for size in self.batch):
            raise ValueError(
                f"batch must have integers >= 1 as its keys (tokens), got {list(self.batch)}"
            )
        if 1 not in self.batch or len(self.batch) < 2:
            raise ValueError(
                f"batch must have the cost of 1 token and of a larger batch, got {dict(self.batch)}"
            )
        batch = {f"batch[{size}]": cost for size, cost in self.batch.items()}
        for name, cost in (batch | {"draft": self.draft, "overhead": self.overhead}).items():
            if not _is_cost(cost) or (name in batch and cost == 0):
                raise ValueError(
                    "costs must be positive, finite numbers (draft and overhead may be 0), "
                    f"got {name} = {cost!r}"
                )

    def call(self, k: int) -> float:
        """Cost of one speculative target call with k drafted tokens."""
        _check_length("k", k)
        sizes = sorted(self.batch)
        costs = [self.batch[size] for size in sizes]
        size = k + 1
        if size > sizes[-1]:
            slope = (costs[-1] - costs[-2]) / (sizes[-1] - sizes[-2])
            own = costs[-1] + max(slope, 0.0) * (size - sizes[-1])
        else:
            own = float(np.interp(size, sizes, costs))
        return own + k * self.draft + self.overhead

    def speedup(self, acceptance: float | Sequence[float], k: int) -> float:
        """Predicted tokens per second over those of plain decoding."""
        single = self.batch[1] + self.overhead
        return expected_tokens(acceptance, k) * single / self.call(k)

    def best_length(self, acceptance: float | Sequence[float], most: int = 16) -> int:
        """The draft length in 0..most with the largest predicted speed-up; 0 is plain decoding."""
        _check_length("most", most)
        if (rates := _rates(acceptance)).ndim:
            most = min(most, len(rates))
        plain = [1.0]
        return int(np.argmax(plain + [self.speedup(acceptance, k) for k in range(1, most + 1)]))
