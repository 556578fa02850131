"""Reading drafted tokens: two numbers each, repaired where they make no sense, and a rule's answer.

Shared by `accept`, `verify` and `output_law`, so that the support rule (cap = 0 where q_n = 0) and
the safe policy's repairs exist once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntFlag

from cactus_rules._arrays import (
    Array,
    Namespace,
    Rows,
    asarray,
    float64,
    gather,
    has_axes,
    is_numpy,
    possible,
    scalars,
)
from cactus_rules._validate import sum_tolerance
from cactus_rules.residual import ids_like, one_hot, residual_weights
from cactus_rules.rules.base import Drafted, Numbers, Rule


class Status(IntFlag):
    """What the safe policy had to repair at a position; 0 is nothing."""

    DRAFT_REPAIRED = 1
    """A bad draft row or p_n was read as one-hot at the drafted token (exact for any proposal)."""
    TOKEN_OUTSIDE = 2
    """The drafted id is outside the vocabulary: rejected, the target drawn from."""
    TARGET_REPAIRED = 4
    """A bad target row: its finite argmax was emitted (token 0 if there is none)."""


@dataclass(frozen=True)
class Positions:
    """Drafted tokens with their numbers. All fields have the positions' shape `(...)`."""

    p_n: Array
    q_n: Array
    token: Array
    numbers: Numbers
    one_hot: Array
    status: Array

    def select(self, pick: Callable[[Array], Array]) -> Positions:
        """The positions that `pick` takes from every field; numbers without axes stay."""

        def each(value: Array) -> Array:
            return pick(value) if has_axes(value) else value

        n = self.numbers
        numbers = Numbers(each(n.cap), each(n.scale), each(n.floor), each(n.floor_id))
        p_n, q_n, token = pick(self.p_n), pick(self.q_n), pick(self.token)
        return Positions(p_n, q_n, token, numbers, pick(self.one_hot), pick(self.status))


def read_positions(
    xp: Namespace, rule: Rule, draft: Array | None, target: Array, token: Array
) -> Positions:
    """Two numbers for every token `(...)` of rows `(..., V)`, and the rule's numbers for them.

    `draft=None` is a one-hot draft. Never raises for data: see `Status`. Rows are touched as a
    whole only by rules that read rows.
    """
    if is_numpy(xp) and token.ndim == 0 and rule.reads == "pair" and target.ndim == 1:
        xp, token = scalars, token[()]
    if not (is_numpy(xp) or xp is scalars):
        rule = rule.placed(xp, target)
    zero, width = 0 * token, target.shape[-1]
    inside = (token >= 0) & (token < width)
    token = xp.where(inside, token, zero)
    q_n = gather(xp, target, token)
    q_fine = (q_n >= 0) & (q_n <= 1 + sum_tolerance(target.dtype, width))
    draft = None if rule.ignores_draft else draft
    whole = rule.reads == "rows" and draft is not None
    if whole:
        q_fine = q_fine & _is_measure(xp, target)
    q_n = xp.where(q_fine & inside, q_n, 0.0)
    if draft is None:
        p_fine = inside | ~inside
        p_n = 1.0 + 0 * q_n
        numbers = rule.numbers(Drafted(xp, p_n, q_n, token, None, target))
    else:
        p_n = gather(xp, draft, token)
        p_fine = (p_n > 0) & (p_n <= 1 + sum_tolerance(draft.dtype, width)) | ~inside
        if whole:
            p_fine = p_fine & (_is_measure(xp, draft) | ~inside)
        p_n = xp.where(p_fine & inside, p_n, 1.0 + 0 * q_n)
        numbers = _with_fallback(xp, rule, draft, target, p_n, q_n, token, ~p_fine)
    cap = xp.where((q_n > 0) & (numbers.cap >= 0), numbers.cap + 0 * q_n, 0 * q_n)
    numbers = Numbers(cap, numbers.scale, numbers.floor, numbers.floor_id)
    status = (
        xp.where(p_fine, zero, zero + int(Status.DRAFT_REPAIRED))
        + xp.where(inside, zero, zero + int(Status.TOKEN_OUTSIDE))
        + xp.where(q_fine | ~inside, zero, zero + int(Status.TARGET_REPAIRED))
    )
    return Positions(p_n, q_n, token, numbers, p_fine if draft is None else ~p_fine, status)


def _with_fallback(
    xp: Namespace,
    rule: Rule,
    draft: Array,
    target: Array,
    p_n: Array,
    q_n: Array,
    token: Array,
    one_hot: Array,
) -> Numbers:
    """The rule's numbers, with the one-hot reading of it where the draft row is bad."""
    numbers = rule.numbers(Drafted(xp, p_n, q_n, token, draft, target))
    if rule.reads != "rows":
        return numbers
    read = rule.numbers(Drafted(xp, p_n, q_n, token, None, target))
    scale = xp.where(one_hot, asarray(xp, read.scale, q_n) + 0 * q_n, numbers.scale + 0 * q_n)
    return Numbers(xp.where(one_hot, read.cap, numbers.cap), scale, numbers.floor, numbers.floor_id)


def _flag(xp: Namespace, condition: Array, flag: Status) -> Array:
    return xp.astype(condition, xp.int64) * int(flag)


def recovered_weights(
    xp: Namespace, draft: Array | None, target: Array, at: Positions, bonus: Array | None = None
) -> tuple[Array, Array]:
    """Weights `(..., V)` of the last token for one position per row, and the added status.

    As `residual_weights`, with what the safe policy reads into bad rows: a bad target emits its
    finite argmax, a bad draft row is one-hot, a token outside the vocabulary leaves the target, as
    does `bonus (...)`, where nothing was rejected.
    """
    q = float64(xp, target)
    p, broken = None, 0 * at.token > 0
    if draft is not None:
        p = float64(xp, draft)
        broken = at.one_hot | ~_is_measure(xp, p)
        if possible(xp, broken):
            p = xp.where(broken[..., None], one_hot(xp, ids_like(xp, q), at.token), p)
    weights = residual_weights(xp, p, q, at.token, at.numbers)
    unreduced = (at.status & int(Status.TOKEN_OUTSIDE)) > 0
    if bonus is not None:
        unreduced = unreduced | bonus
    # A target that is one-hot at the rejected token leaves nothing but that token.
    replaced = unreduced | ~(xp.sum(weights, axis=-1) > 0)
    if possible(xp, replaced):
        weights = xp.where(replaced[..., None], q, weights)
    repaired, status = sane_target(xp, q)
    if possible(xp, status > 0):
        weights = xp.where((status > 0)[..., None], repaired, weights)
    read_as_one_hot = broken & ~unreduced & (status == 0)
    return weights, status + _flag(xp, read_as_one_hot, Status.DRAFT_REPAIRED)


def sane_target(xp: Namespace, q: Array) -> tuple[Array, Array]:
    """Float64 target rows, one-hot at the finite argmax where they are bad, and the status."""
    total = xp.sum(q, axis=-1)
    bad = ~(_is_measure(xp, q) & (total > 0) & (total < math.inf))
    if not possible(xp, bad):
        return q, _flag(xp, bad, Status.TARGET_REPAIRED)
    weights = xp.where(bad[..., None], finite_argmax(xp, q), q)
    return weights, _flag(xp, bad, Status.TARGET_REPAIRED)


def _is_measure(xp: Namespace, rows: Array) -> Array:
    """Whether all entries of rows are finite and >= 0."""
    if isinstance(rows, Rows):
        return rows.is_measure()
    return (xp.min(rows, axis=-1) >= 0) & (xp.max(rows, axis=-1) < math.inf)


def finite_argmax(xp: Namespace, rows: Array) -> Array:
    """One-hot float64 rows at the largest finite entry, the lowest id among equals; 0 if none."""
    usable = xp.isfinite(rows) & (rows >= 0)
    best = xp.argmax(xp.where(usable, rows, xp.full_like(rows, -1.0)), axis=-1)
    return one_hot(xp, ids_like(xp, rows), best)
