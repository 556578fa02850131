"""A language model made of a table, for tests of the speculative loop without an engine."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats


class TableModel:
    """The next token depends on the last two: `table[a, b]` holds the logits after ..., a, b."""

    def __init__(self, table: np.ndarray, *, n_ctx: int = 64) -> None:
        self.table = table.astype(np.float32)
        self.n_vocab = table.shape[-1]
        self.n_ctx = n_ctx
        self.tokens: list[int] = []
        self.steps: list[int] = []

    @property
    def length(self) -> int:
        return len(self.tokens)

    def prefill(self, ids: Sequence[int]) -> None:
        self.tokens += [int(i) for i in ids]
        assert self.length <= self.n_ctx

    def step(self, ids: Sequence[int]) -> np.ndarray:
        start = self.length
        self.prefill(ids)
        self.steps.append(len(ids))
        return np.stack([self.logits(self.tokens[: start + i + 1]) for i in range(len(ids))])

    def rollback(self, length: int) -> None:
        assert 0 <= length <= self.length
        del self.tokens[length:]

    def logits(self, text: Sequence[int]) -> np.ndarray:
        a, b = (text[-2] if len(text) > 1 else 0), text[-1]
        last = len(self.table) - 1
        return self.table[min(a, last), min(b, last)]


def table(seed: int, *, vocab: int = 4, spread: float = 1.2) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, spread, (vocab, vocab, vocab))


def softmax(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def chi_square(counts: np.ndarray, law: np.ndarray) -> float:
    """p-value of counts under a law; cells with fewer than 5 expected counts are put together."""
    counts, law = counts.ravel(), law.ravel()
    assert counts[law == 0].sum() == 0, "an impossible outcome occurred"
    expected = counts.sum() * law
    small = expected < 5
    counts = np.append(counts[~small], counts[small].sum())
    expected = np.append(expected[~small], expected[small].sum())
    keep = expected > 0
    return float(stats.chisquare(counts[keep], expected[keep]).pvalue)
