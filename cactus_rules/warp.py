"""From logits to the law that is sampled: temperature, top-k, top-p and min-p, in this order."""

from __future__ import annotations

import math
import reprlib
from typing import Any

import numpy as np

from cactus_rules._arrays import (
    Array,
    Namespace,
    cumulative_sum,
    float64,
    has_axes,
    is_kind,
    is_numpy,
    namespace,
    numpy_namespace,
    quiet,
)
from cactus_rules._validate import as_array
from cactus_rules.sparse import Sparse

_FEW = 256
"""Tokens among which a nucleus is looked for first; four times as many while they fall short."""


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
        logits: `(..., V)`; -inf excludes a token. Arrays of any library, or nested lists.
        temperature: > 0, or 0 for one-hot at the argmax (the lowest id among equals).
        top_k: keep the k largest, ties to the lower id; 0 keeps all.
        top_p: keep the shortest prefix, by falling probability, with this mass; 1 keeps all.
        min_p: keep tokens with at least this share of the largest probability; 0 keeps all.

    The filters apply one after the other to renormalised laws, after the temperature: the order of
    vLLM and transformers. Apply the same options to draft and target.

    Returns:
        Probabilities `(..., V)`, in the dtype of `logits` (float32 for half types, float64 for
        integers). NaN where a row has NaN, +inf or nothing but -inf.

    Raises:
        ValueError: an option outside its range; logits that are no rows of numbers.
    """
    check_options(temperature, top_k, top_p, min_p)
    xp, logits = as_logits(logits)
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
    """As `warp`, for numpy logits `(..., V)`, as candidate lists of the tokens that remain.

    A row that `warp` makes NaN lists token 0 with NaN, which "strict" refuses and "safe" repairs.
    """
    check_options(temperature, top_k, top_p, min_p)
    top_k = int(top_k)
    options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    _, logits = as_logits(as_array(numpy_namespace, logits, None, "logits"))
    if 0 < top_k < logits.shape[-1] and temperature > 0:
        ids = np.empty((*logits.shape[:-1], top_k), np.int64)
        for at in np.ndindex(*logits.shape[:-1]):
            ids[at] = _largest(logits[at], top_k)
        kept = warp(np.take_along_axis(logits, ids, axis=-1), **options)  # type: ignore[arg-type]
        ids = np.where(kept > 0, ids, -1)
        ids[..., :1][np.isnan(kept[..., :1])] = 0
        return Sparse(ids, kept)
    if temperature > 0 and (top_p < 1 or min_p > 0):
        return _nuclei(logits, warp(logits, temperature=temperature), top_p, min_p)
    law = warp(logits, **options)  # type: ignore[arg-type]
    law[..., 1:][np.isnan(law[..., 1:])] = 0
    return Sparse.from_dense(law)


def check_options(temperature: float, top_k: int, top_p: float, min_p: float) -> None:
    """ValueError for a sampling option outside its range."""
    if not 0 <= _number("temperature", temperature) < math.inf:
        raise ValueError(f"temperature must be finite and >= 0 (0 is greedy), got {temperature!r}")
    k = _number("top_k", top_k)
    if isinstance(top_k, bool) or not (0 <= k < math.inf and k == int(k)):
        raise ValueError(f"top_k must be an integer >= 0 (0 keeps all tokens), got {top_k!r}")
    if not 0 < _number("top_p", top_p) <= 1:
        raise ValueError(f"top_p must be in (0, 1] (1 keeps all tokens), got {top_p!r}")
    if not 0 <= _number("min_p", min_p) <= 1:
        raise ValueError(f"min_p must be in [0, 1] (0 keeps all tokens), got {min_p!r}")


def _number(name: str, value: Any) -> float:
    """An option as a float, NaN for what is no number; ValueError for several numbers."""
    if has_axes(value):
        raise ValueError(
            f"{name} must be one number, got an array {tuple(value.shape)}: one value per request "
            "is a tensor in cactus_rules.adapters.torch.warp"
        )
    try:
        return math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def as_logits(logits: Any) -> tuple[Namespace, Array]:
    """The namespace of logits, and they as floats `(..., V)`; ValueError for what is none."""
    if isinstance(logits, (list, tuple)):
        logits = as_array(numpy_namespace, logits, None, "logits")
    try:
        xp = namespace(logits)
    except TypeError:
        raise ValueError(
            f"logits must be rows (..., V), an array or nested lists, got {reprlib.repr(logits)}"
        ) from None
    if is_numpy(xp):
        logits = np.asarray(logits)
    if is_kind(xp, logits, "integral"):
        logits = xp.astype(logits, xp.float64)
    if not is_kind(xp, logits, "real floating"):
        raise ValueError(f"logits must hold floats, got dtype {logits.dtype}")
    if logits.ndim == 0 or logits.shape[-1] == 0:
        raise ValueError(
            f"logits must be rows (..., V) of at least one token, got shape {tuple(logits.shape)}"
        )
    return xp, logits


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
    inverse = xp.argsort(order, axis=-1)
    kept = float64(xp, xp.where(rank < top_k, sorted_probs, 0 * sorted_probs))
    if not isinstance(top_p, float) or top_p < 1:
        # The total is added in id order: `candidates` knows no other order of all tokens.
        total = float64(xp, xp.where(inverse < top_k, probs, 0 * probs))
        total = xp.sum(total, axis=-1, keepdims=True)
        sums = cumulative_sum(xp, kept)
        before = xp.concat([0 * kept[..., :1], sums[..., :-1]], axis=-1)
        within = (before < top_p * total) | (rank == 0) | (top_p >= 1)
        kept = xp.where(within, kept, 0 * kept)
    kept = xp.where(kept >= min_p * kept[..., :1], kept, 0 * kept)
    kept = kept / xp.sum(kept, axis=-1, keepdims=True)
    return xp.astype(xp.take_along_axis(kept, inverse, axis=-1), probs.dtype)


def _nuclei(logits: np.ndarray, probs: np.ndarray, top_p: float, min_p: float) -> Sparse:
    """Top-p and min-p on laws `(..., V)` by their logits, without a sort of whole rows."""
    batch = probs.shape[:-1]
    with quiet(np):
        rows = {at: _nucleus(logits[at], probs[at], top_p, min_p) for at in np.ndindex(*batch)}
    width = max((len(ids) for ids, _ in rows.values()), default=1)
    found = np.full((*batch, width), -1, np.int64)
    kept = np.zeros((*batch, width), probs.dtype)
    for at, (ids, law) in rows.items():
        found[at][: len(ids)], kept[at][: len(ids)] = ids, law
    return Sparse(found, kept)


def _nucleus(
    logits: np.ndarray, probs: np.ndarray, top_p: float, min_p: float
) -> tuple[np.ndarray, np.ndarray]:
    """Ids, rising, and law of the tokens of one row that top-p and min-p keep; 0 of no law."""
    if np.isnan(probs[0]):
        return np.zeros(1, np.int64), probs[:1]
    if top_p < 1:
        bar = top_p * np.sum(probs.astype(np.float64))
        count = min(_FEW, len(probs))
        ids = _largest(logits, count)
        # The sums below add in another order: these must reach the bar in any.
        while count < len(probs) and not np.sum(probs[ids], dtype=np.float64) > bar * (1 + 1e-9):
            count = min(4 * count, len(probs))
            ids = _largest(logits, count)
        ids = ids[np.argsort(-logits[ids], stable=True)]
        sums = np.cumsum(probs[ids], dtype=np.float64)
        ids = np.sort(ids[: 1 + np.count_nonzero(sums[:-1] < bar)])
    else:
        ids = np.flatnonzero(probs)
    kept = probs[ids].astype(np.float64)
    kept[~(kept >= min_p * np.max(kept))] = 0
    kept = (kept / np.sum(kept)).astype(probs.dtype)
    some = kept != 0
    return ids[some], kept[some]


def _largest(logits: np.ndarray, k: int) -> np.ndarray:
    """Ids, rising, of the k largest logits of a row, ties to the lower id; NaN is the largest."""
    if k == len(logits):
        return np.arange(k)
    largest = np.partition(logits, len(logits) - k)[-k:]
    if np.isnan(largest).any():
        return np.sort(np.argpartition(logits, len(logits) - k)[-k:])
    bar = largest[0]
    above, ties = np.flatnonzero(logits > bar), np.flatnonzero(logits == bar)
    return np.sort(np.concatenate([above, ties[: k - len(above)]]))
