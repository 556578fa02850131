"""Random rows to try claims on: smooth, peaked, tied, with zeros, nearly equal, nearly disjoint.

What they leave out: vocabularies above a few dozen tokens (the oracles enumerate) and probabilities
under about 1e-12 except where a claim is about tiny numbers and makes its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float64]


def row(rng: np.random.Generator, size: int, zeros: int = 0) -> Row:
    """A law on `size` tokens, `zeros` of them excluded, anything from flat to nearly one-hot."""
    weights = rng.dirichlet(np.full(size, 10 ** rng.uniform(-0.7, 0.7))) + 1e-12
    if rng.random() < 0.2:  # ties
        weights = np.ceil(weights * 4)
    if zeros:
        weights[rng.choice(size, zeros, replace=False)] = 0.0
    return normalised(weights)


def normalised(weights: Row) -> Row:
    """`weights` as a law."""
    law: Row = weights / weights.sum()
    return law


def pair(
    rng: np.random.Generator, low: int = 2, high: int = 9, zeros: bool = True
) -> tuple[Row, Row]:
    """Draft and target rows; with `zeros`, sometimes tokens that one or both of them exclude."""
    size = int(rng.integers(low, high))
    kind = rng.random()
    excluded = rng.integers(0, size - 1, 2) * (rng.random(2) < 0.5) * (zeros and size > 2)
    target = row(rng, size, int(excluded[0]))
    if kind < 0.15:  # nearly equal
        draft = normalised(target * np.exp(rng.normal(0, 0.05, size)))
    elif kind < 0.25:  # one-hot
        draft = np.zeros(size)
        draft[rng.choice(np.flatnonzero(target))] = 1.0
    elif kind < 0.35:  # sharper than the target
        draft = normalised(np.where(target > 0, target ** rng.uniform(1.2, 4), 0.0))
    else:
        draft = row(rng, size, int(excluded[1]))
    if not ((draft > 0) & (target > 0)).any():
        return pair(rng, low, high, zeros)
    return draft, target


def budget(rng: np.random.Generator, low: float = -3.0, high: float = 0.5) -> float:
    """A divergence budget, log-uniform between 10^low and 10^high nats."""
    return float(10 ** rng.uniform(low, high))
