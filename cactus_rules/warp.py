"""From logits to the law that is sampled: temperature, top-k, top-p and min-p, in this order."""

from __future__ import annotations

import math

import numpy as np

from cactus_rules._arrays import Array, Namespace, float64, namespace, quiet
from cactus_rules.sparse import Sparse


def warp(
    logits: Array,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Array:
    """Probabilities of the sampled token, the law that an acceptance rule must be given.

    Args:
        logits: `(..., V)`; -inf excludes a token.
        temperature: > 0, or 0 for one-hot at the argmax (the lowest id among equals).
        top_k: keep the k largest, ties to the lower id; 0 keeps all.
        top_p: keep the shortest prefix, by falling probability, with this mass; 1 keeps all.
        min_p: keep tokens with at least this share of the largest probability; 0 keeps all.

    The filters apply one after the other to renormalised laws, after the temperature: the order of
    vLLM and transformers. Apply the same options to draft and target.

    Returns:
        Probabilities `(..., V)`, in the dtype of `logits` (float32 for half types).

    Raises:
        ValueError: an option outside its range.
    """
    check_options(temperature, top_k, top_p, min_p)
    xp = namespace(logits)
    with quiet(xp):
        wide = logits if str(logits.dtype).endswith("64") else xp.astype(logits, xp.float32)
        if temperature == 0:
            return one_hot_argmax(xp, wide)
        probs = softmax(xp, wide, max(temperature, 1e-30))
        if top_k <= 0 and top_p >= 1 and min_p <= 0:
            return probs
        # Ordered by logit: two of them may round to one probability.
        order = xp.argsort(wide, axis=-1, descending=True, stable=True)
        return filtered(xp, probs, order, top_k or probs.shape[-1], top_p, min_p)


def candidates(
    logits: np.ndarray,
    *,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
) -> Sparse:
    """As `warp`, for numpy logits `(..., V)`, as candidate lists of the tokens that remain."""
    check_options(temperature, top_k, top_p, min_p)
    top_k = int(top_k)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    logits = np.asarray(logits)
    if 0 < top_k < logits.shape[-1] and temperature > 0:
        ids = _largest(logits, top_k)
        kept = warp(np.take_along_axis(logits, ids, axis=-1), **options)  # type: ignore[arg-type]
        return Sparse(np.where(kept > 0, ids, -1), kept)
    return Sparse.from_dense(warp(logits, **options))  # type: ignore[arg-type]


def check_options(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """ValueError for a sampling option outside its range."""
    if not (temperature >= 0 and math.isfinite(temperature)):
        raise ValueError(f"temperature must be finite and >= 0 (0 is greedy), got {temperature!r}")
    if isinstance(top_k, bool) or top_k != int(top_k) or top_k < 0:
        raise ValueError(f"top_k must be an integer >= 0 (0 keeps all tokens), got {top_k!r}")
    if not 0 < top_p <= 1:
        raise ValueError(f"top_p must be in (0, 1] (1 keeps all tokens), got {top_p!r}")
    if not 0 <= min_p <= 1:
        raise ValueError(f"min_p must be in [0, 1] (0 keeps all tokens), got {min_p!r}")


def one_hot_argmax(xp: Namespace, logits: Array) -> Array:
    """One-hot rows at the largest logit, the lowest id among equals."""
    ids = xp.arange(logits.shape[-1], dtype=xp.int64, device=getattr(logits, "device", None))
    best = xp.argmax(logits, axis=-1, keepdims=True)
    return xp.astype(ids == best, logits.dtype)


def softmax(xp: Namespace, logits: Array, temperature: Array | float) -> Array:
    """Softmax at a positive temperature, a number or `(..., 1)`."""
    # Differences first: they are <= 0, so that no temperature, however low, makes a NaN.
    below = logits - xp.max(logits, axis=-1, keepdims=True)
    weights = xp.exp(below / temperature)
    return weights / xp.sum(weights, axis=-1, keepdims=True)


def filtered(
    xp: Namespace,
    probs: Array,
    order: Array,
    top_k: Array | int,
    top_p: Array | float,
    min_p: Array | float,
) -> Array:
    """Top-k, top-p and min-p on laws whose tokens fall in `order`; numbers or `(..., 1)`."""
    sorted_probs = xp.take_along_axis(probs, order, axis=-1)
    rank = xp.arange(probs.shape[-1], dtype=xp.int64, device=getattr(probs, "device", None))
    keep = rank < top_k
    kept = float64(xp, xp.where(keep, sorted_probs, 0 * sorted_probs))
    if not isinstance(top_p, float) or top_p < 1:
        total = xp.sum(kept, axis=-1, keepdims=True)
        before = xp.cumulative_sum(kept, axis=-1) - kept
        within = (before < top_p * total) | (rank == 0) | (top_p >= 1)
        kept = xp.where(within, kept, 0 * kept)
    kept = xp.where(kept >= min_p * kept[..., :1], kept, 0 * kept)
    kept = kept / xp.sum(kept, axis=-1, keepdims=True)
    inverse = xp.argsort(order, axis=-1)
    return xp.astype(xp.take_along_axis(kept, inverse, axis=-1), probs.dtype)


def _largest(logits: np.ndarray, k: int) -> np.ndarray:
    """Ids `(..., k)`, rising, of the k largest logits, ties to the lower id."""
    bar = -np.partition(-logits, k - 1, axis=-1)[..., k - 1 : k]
    above = logits > bar
    room = k - np.count_nonzero(above, axis=-1, keepdims=True)
    ties = logits == bar
    chosen = above | (ties & (np.cumsum(ties, axis=-1) <= room))
    return np.argsort(~chosen, axis=-1, stable=True)[..., :k]
