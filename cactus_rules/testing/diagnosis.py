"""What a deviation looks like: known mistakes, each as the numbers that it would give."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from cactus_rules.acceptance import accept
from cactus_rules.rules import Lossless, Rule

Row = np.ndarray

COIN_STUCK = "coin stuck: every token is kept, whatever its probability"
ALL_REJECTED = "every token is rejected"
SWAPPED = "draft and target are swapped"
NOT_DIVIDED = "the cap is not divided by the draft probability"
IS_LOSSLESS = "this is the lossless rule, not the one asked for"
IS_TARGET = "the draft is not subtracted from the target in the residual"
WITHOUT_TOKEN = "the residual is the target without the rejected token (draft read as one-hot)"
NOT_RENORMALISED = "residual not renormalised: the missing mass falls on the last token"
BY_SOFTMAX = "residual normalised by softmax"
IS_DRAFT = "the recovered token is drawn from the draft"
UNIFORM = "the recovered token is drawn uniformly"
OTHER_POSITION = "the residual is that of another position"
ZERO_COIN = "not strict: a coin of 0 keeps a token with target probability 0"
DRAW_IGNORED = "the draw does not use uniforms[k, 1]"


def acceptance(p: Row, q: Row, token: int, rule: Rule) -> Iterator[tuple[str, float]]:
    """Mistakes, and the probability of acceptance that each would give."""
    yield COIN_STUCK, 1.0
    yield ALL_REJECTED, 0.0
    yield IS_LOSSLESS, min(1.0, q[token] / p[token])
    if q[token] > 0:
        yield SWAPPED, min(1.0, p[token] / q[token])
    yield NOT_DIVIDED, min(1.0, float(accept(p, q, token, rule=rule).cap))


def residual(
    p: Row, q: Row, token: int, others: list[Row], rule: Rule
) -> Iterator[tuple[str, Row]]:
    """Mistakes, and the law of the recovered token that each would give."""
    own = accept(p, q, token, rule=rule)
    scale = float(own.scale)
    weights = np.maximum(q if np.isinf(scale) else scale * q - p, 0.0)
    yield NOT_RENORMALISED, np.append(weights[:-1], 1 - weights[:-1].sum())
    yield IS_TARGET, q
    yield IS_LOSSLESS, accept(p, q, token, rule=Lossless()).residual()
    alone = np.where(np.arange(len(q)) == token, 0.0, q)
    if alone.sum() > 0:
        yield WITHOUT_TOKEN, alone / alone.sum()
    yield BY_SOFTMAX, np.exp(weights) / np.exp(weights).sum()
    yield IS_DRAFT, p
    yield SWAPPED, _normalised(np.maximum(p - q, 0.0))
    yield UNIFORM, np.full(len(q), 1 / len(q))
    for row in others:
        yield OTHER_POSITION, row


def _normalised(weights: Row) -> Row:
    total = weights.sum()
    return weights / total if total > 0 else weights
