"""Candidate lists: rows that name their tokens, as llama.cpp and top-k samplers keep them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cactus_rules import _validate
from cactus_rules._arrays import numpy_namespace, quiet


@dataclass(frozen=True)
class Sparse:
    """Rows given as candidates: probability `probs[..., c]` for the token `ids[..., c]`.

    Tokens that are not listed have probability 0. The order is free: two lists are matched by id,
    never by index, and draws go in id order. A slot with id -1 is padding. A token that is listed
    twice has the sum of its probabilities.

    Args:
        ids: integers `(..., C)`.
        probs: floats `(..., C)`.
    """

    ids: np.ndarray
    probs: np.ndarray

    def __post_init__(self) -> None:
        """Check shapes and dtypes."""
        ids, probs = (
            _validate.as_array(numpy_namespace, value, None, f"Sparse: {name}")
            for name, value in (("ids", self.ids), ("probs", self.probs))
        )
        if ids.shape != probs.shape or ids.ndim == 0:
            raise ValueError(
                f"Sparse: ids {ids.shape} and probs {probs.shape} must have one shape (..., C)"
            )
        if ids.dtype.kind not in "iu" or probs.dtype.kind != "f":
            raise ValueError(
                f"Sparse: ids must be integers and probs floats, got {ids.dtype} and {probs.dtype}"
            )
        ids = ids.astype(np.int64, copy=False)
        if ids.size and (least := ids.min()) < -1:
            raise ValueError(f"Sparse: ids must be >= 0, or -1 for padding, got {least}")
        object.__setattr__(self, "ids", ids)
        object.__setattr__(self, "probs", probs)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of `ids`; the last axis counts candidates, not the vocabulary."""
        return self.ids.shape

    def dense(self, vocabulary_size: int) -> np.ndarray:
        """The same rows over the whole vocabulary, `(..., vocabulary_size)`.

        Raises:
            ValueError: a size that is no integer, or too small for the ids.
        """
        least = int(self.ids.max(initial=-1)) + 1
        if not isinstance(vocabulary_size, (int, np.integer)) or vocabulary_size < least:
            raise ValueError(
                f"vocabulary_size must be an integer >= {least}, above all ids that are listed, "
                f"got {vocabulary_size!r}"
            )
        rows = np.zeros((*self.shape[:-1], vocabulary_size), self.probs.dtype)
        for at in np.ndindex(*self.shape[:-1]):
            kept = self.ids[at] >= 0
            np.add.at(rows[at], self.ids[at][kept], self.probs[at][kept])
        return rows

    @classmethod
    def from_dense(cls, rows: np.ndarray) -> Sparse:
        """The tokens with positive probability of dense rows `(..., V)`, padded to one length."""
        rows = _validate.as_array(numpy_namespace, rows, None, "rows")
        if rows.ndim == 0 or rows.dtype.kind != "f":
            raise ValueError(
                f"rows must hold floats (..., V), got {rows.dtype} of shape {rows.shape}"
            )
        count = int(np.max(np.count_nonzero(rows, axis=-1), initial=1))
        ids = np.sort(np.argsort(rows == 0, axis=-1, stable=True)[..., :count], axis=-1)
        probs = np.take_along_axis(rows, ids, axis=-1)
        return cls(np.where(probs != 0, ids, -1), probs)


def align(
    draft: Sparse | None, target: Sparse, tokens: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray, np.ndarray]:
    """Bring rows that list different candidates to common columns.

    Args:
        draft, target: rows of one batch shape `(...)`, or no draft rows.
        tokens: one token `(...)` for each row; negative ones are no tokens.

    Returns:
        ids `(..., U)`, rising, each row padded at its end by -1; draft probs `(..., U)` or None;
        target probs `(..., U)`; and the columns `(...)` of the tokens, -1 where there is none. Of
        bad target rows token 0 is among the ids, see `emptied`.
    """
    batch = target.shape[:-1]
    rows = []
    for at in np.ndindex(*batch):
        listed = [target.ids[at], np.atleast_1d(tokens[at])]
        if draft is not None:
            listed.append(draft.ids[at])
        if not _sane(target.probs[at][target.ids[at] >= 0]):
            listed.append(np.zeros(1, np.int64))
        union = np.unique(np.concatenate(listed))
        rows.append(union[union >= 0])
    width = max([len(row) for row in rows], default=0) or 1
    ids = np.full((*batch, width), -1, np.int64)
    columns = np.full(batch, -1, np.int64)
    q = np.zeros((*batch, width), target.probs.dtype)
    p = None if draft is None else np.zeros((*batch, width), draft.probs.dtype)
    with quiet(np):
        for at, union in zip(np.ndindex(*batch), rows, strict=True):
            ids[at][: len(union)] = union
            _place(q[at], union, target.ids[at], target.probs[at])
            if draft is not None and p is not None:
                _place(p[at], union, draft.ids[at], draft.probs[at])
            if tokens[at] >= 0:
                columns[at] = np.searchsorted(union, tokens[at])
    return ids, p, q, columns


def emptied(target: np.ndarray) -> np.ndarray:
    """Target rows of `align`, all 0 where none is finite and > 0: the safe policy emits token 0."""
    usable = np.any((target > 0) & (target < np.inf), axis=-1, keepdims=True)
    return np.where(usable, target, np.zeros_like(target))


def _sane(probs: np.ndarray) -> bool:
    with quiet(np):
        return bool(probs.min(initial=0) >= 0 and 0 < probs.sum() < np.inf)


def _place(row: np.ndarray, union: np.ndarray, ids: np.ndarray, probs: np.ndarray) -> None:
    kept = ids >= 0
    np.add.at(row, np.searchsorted(union, ids[kept]), probs[kept])
