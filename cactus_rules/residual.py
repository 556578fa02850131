"""What is drawn after a rejection: max(scale q - p, 0) on the tokens above the floor."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

from cactus_rules._arrays import (
    Array,
    Namespace,
    asarray,
    cumulative_sum,
    float64,
    namespace,
    numpy_namespace,
    positive,
    possible,
)
from cactus_rules._validate import as_array
from cactus_rules.rules.base import Numbers
from cactus_rules.sparse import Sparse


def residual_weights(
    xp: Namespace, draft: Array | None, target: Array, token: Array, numbers: Numbers
) -> Array:
    """Unnormalised float64 weights `(..., V)` of the recovered token.

    Args:
        xp: the namespace of the rows.
        draft: rows `(..., V)`, or None for a draft that is one-hot at `token`.
        target: rows `(..., V)`.
        token: the rejected tokens `(...)`.
        numbers: the rule's numbers for them, `(...)`.

    Where rounding has left nothing, the weights are the target without the rejected token.
    """
    q = float64(xp, target)
    ids = ids_like(xp, q)
    scale = asarray(xp, numbers.scale, q)[..., None]
    whole = scale == math.inf
    p = one_hot(xp, ids, token) if draft is None else float64(xp, draft)
    if possible(xp, whole):
        p = xp.where(whole, xp.zeros_like(p), p)
    surplus = xp.where(whole, xp.ones_like(scale), scale) * q - p
    weights = positive(xp, surplus)
    if numbers.floor is not None and numbers.floor_id is not None:
        floor = asarray(xp, numbers.floor, q)[..., None]
        floor_id = asarray(xp, numbers.floor_id, q)[..., None]
        weights = xp.where((q > floor) | ((q == floor) & (ids <= floor_id)), weights, 0 * weights)
    empty = (xp.sum(weights, axis=-1) == 0)[..., None]
    if not possible(xp, empty):
        return weights
    return xp.where(empty, xp.where(ids == token[..., None], 0 * q, q), weights)


def draw_index(xp: Namespace, weights: Array, u: Array) -> Array:
    """Inverse CDF in index order: the first i with C_i > u C_last, C = cumulative sums of weights.

    Weights `(..., V)` in float64, non-negative and not all zero; u `(...)` in [0, 1). A token of
    weight 0 is never drawn.
    """
    sums = cumulative_sum(xp, weights)
    last = sums[..., -1:]
    bar = u[..., None] * last
    below = sums <= bar
    if possible(xp, bar >= last):
        # Where u C_last rounds to C_last (subnormal sums), the first i that reaches C_last.
        below = below & (sums < last)
    return xp.count_nonzero(below, axis=-1)


def draw(row: Array | Sparse, u: float) -> int:
    """One token from a row of probabilities `(V,)` or a candidate list: inverse CDF in id order.

    Args:
        row: probabilities or weights, non-negative, not all zero.
        u: uniform in [0, 1), from the caller.

    Raises:
        ValueError: a row with a negative or non-finite entry or without mass, or u outside [0, 1).
    """
    if isinstance(row, (list, tuple)):
        row = as_array(numpy_namespace, row, None, "row")
    shape = getattr(row, "shape", None)
    if shape is None or len(shape) != 1:
        got = reprlib.repr(row) if shape is None else f"shape {tuple(shape)}"
        raise ValueError(
            f"row must be one row (V,) of probabilities, an array or a list, got {got}"
        )
    if isinstance(row, Sparse):
        order = np.argsort(row.ids, stable=True)
        probs = np.where(row.ids >= 0, row.probs, 0.0)
        return int(row.ids[order][draw(probs[order], u)])
    xp = namespace(row)
    weights = float64(xp, row)
    if not 0 <= u < 1:
        raise ValueError(f"u must be in [0, 1), got {u!r}: pass a fresh uniform number")
    if not bool(xp.all(xp.isfinite(weights) & (weights >= 0))) or float(xp.sum(weights)) <= 0:
        raise ValueError("row must be finite, non-negative and have mass: nothing to draw from")
    return int(draw_index(xp, weights, asarray(xp, np.float64(u), weights)))


def one_hot(xp: Namespace, ids: Array, token: Array) -> Array:
    """Float64 rows that are 1 at the token."""
    return xp.astype(ids == token[..., None], xp.float64)


def ids_like(xp: Namespace, rows: Any) -> Array:
    """0 .. V-1 on the device of the rows."""
    device = getattr(rows, "device", None)
    return xp.arange(rows.shape[-1], dtype=xp.int64, device=device)
