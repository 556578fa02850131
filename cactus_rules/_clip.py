r"""The clip family h = clip(p, b q, a q): which (a, b) meets a divergence budget or a band width.

Mass balance ties the two ends together:

    sum (b q - p)+  =  sum (p - a q)+  +  (draft mass where q = 0)

so the family has one parameter, a, from 1 (h = q) to max p/q (h = p on the support of q). With
tokens sorted by p/q every sum is one over all tokens on one side, and one pass over the rows gives
the sums of blocks from which it is put together. In log(a - 1) the logarithm of a divergence of h
from q is nearly straight, with a slope between 1 and 2; a divergence that is infinite where h
excludes a token grows without bound as a nears max p/q. In the log-odds of a between the two ends,
a few Newton steps in a bracket find the budget; on devices their number is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from cactus_rules import divergences
from cactus_rules._arrays import (
    Array,
    Namespace,
    asarray,
    cumulative_sum,
    device_of,
    float64,
    is_numpy,
    is_torch,
    kernels_of,
    namespace,
    numpy_namespace,
    possible,
    quiet,
)
from cactus_rules._ratio_order import HIGHEST, RatioOrder
from cactus_rules.divergences import Divergence

_EPS = 2.0**-52
_STEPS = 30
FAR = 1e250
"""No end is beyond it: of a token that counts as excluded, 1e-50 of its p may be kept."""
_PART = 1 << 18
"""Entries of the rows that are searched at a time on the CPU: what caches hold."""

_Solve: TypeAlias = Callable[[Namespace, Array, Array, Array], tuple[Array, Array]]


def rounding(width: int) -> float:
    """What a sum over a row may be off, relative to the sum of its terms' sizes."""
    return _EPS * (16 + math.sqrt(width))


def clip_within_budget(
    draft: Array, target: Array, divergence: Divergence, delta: Array
) -> tuple[Array, Array]:
    """(a, b) for which clip(p, b q, a q) accepts most with D(clip || q) <= delta.

    Rows `(..., V)`, `delta (...)`; returns two float64 arrays `(...)` with b <= 1 <= a, times the
    ratio of the rows' sums where these are not 1.
    """
    if kernels := kernels_of(target):
        number = asarray(namespace(target), delta, target)
        if (ends := kernels.clip_within_budget(draft, target, divergence, number)) is not None:
            return ends

    def solve(xp: Namespace, p: Array, q: Array, delta: Array) -> tuple[Array, Array]:
        if isinstance(divergence, divergences.MaxDivergence):
            rows = _Family(p, q, xp)
            return rows.ends(xp.exp(delta + 0 * rows.row_scale) * (1 - 16 * _EPS))
        rows = _Family(p, q, xp, divergence)
        ulps = rounding(p.shape[-1])
        return rows.largest(
            lambda clip: _spent(clip, divergence, ulps, xp), delta + 0 * rows.row_scale
        )

    return _solved(solve, draft, target, delta)


def clip_within_band(draft: Array, target: Array, width: Array) -> tuple[Array, Array]:
    """(a, b) with log(a/b) = width, or h = p on the support of q where the width allows it."""

    def solve(xp: Namespace, p: Array, q: Array, width: Array) -> tuple[Array, Array]:
        rows = _Family(p, q, xp)
        stretch = xp.expm1(width + 0 * rows.row_scale)

        def stretched(clip: _Clip) -> tuple[Array, Array]:
            a, b = clip.a, clip.b
            return a / b - 1, (1 + a * clip.high / (b * clip.low)) / b

        return rows.largest(stretched, stretch)

    return _solved(solve, draft, target, width)


def _solved(solve: _Solve, draft: Array, target: Array, number: Array) -> tuple[Array, Array]:
    """(a, b) for rows `(..., V)` and a number `(...)`.

    In numpy wherever it can read the rows: torch sorts several times slower on the CPU.
    """
    xp = namespace(draft, target)
    given = (float64(xp, x) for x in (draft, target, asarray(xp, number, target)))
    with quiet(xp):
        if is_numpy(xp):
            return _in_parts(solve, *given)
        if not _in_host_memory(xp, target):
            return solve(xp, *given)
    with quiet(np):
        a, b = _in_parts(solve, *(x.detach().numpy() for x in given))
    return xp.from_numpy(np.asarray(a)), xp.from_numpy(np.asarray(b))


def _in_host_memory(xp: Namespace, rows: Array) -> bool:
    """Whether numpy can read rows in place: not on devices, and not for a compiler."""
    return is_torch(xp) and not xp.compiler.is_compiling() and device_of(rows).type == "cpu"


def _in_parts(
    solve: _Solve, p: np.ndarray, q: np.ndarray, number: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """`solve` for as many rows at a time as caches hold: no row sees which others there are."""
    batch = np.broadcast_shapes(p.shape[:-1], q.shape[:-1], np.shape(number))
    p, q = (np.broadcast_to(rows, (*batch, rows.shape[-1])) for rows in (p, q))
    number = np.broadcast_to(number, batch)[()]
    if not batch or p.size <= _PART:
        return solve(numpy_namespace, p, q, number)
    step = _PART * len(p) // p.size
    if step <= 1:
        parts = [_in_parts(solve, *one) for one in zip(p, q, number, strict=True)]
        a, b = (np.stack(ends) for ends in zip(*parts, strict=True))
    else:
        starts = range(0, len(p), step)
        parts = [solve(numpy_namespace, *(x[i : i + step] for x in (p, q, number))) for i in starts]
        a, b = (np.concatenate(ends) for ends in zip(*parts, strict=True))
    return a, b


@dataclass(frozen=True, slots=True)
class _Clip:
    """One member of the family: its ends, the masses at each, and what lies between.

    At p/q <= b the target has mass `low` and the draft `kept`, at p/q > a `high` and `taken`;
    between the ends h = p, which is `moved`, sum |p - q|, away from q and costs `between`.
    """

    a: Array
    b: Array
    low: Array
    kept: Array
    high: Array
    taken: Array
    moved: Array
    between: Array


def _spent(clip: _Clip, divergence: Divergence, ulps: float, xp: Namespace) -> tuple[Array, Array]:
    """The divergence of what is emitted with these ends, and the derivative in a of the clip's.

    What rounding of the sums, of their terms and of the ends may have hidden counts as spent.
    """
    a, b, zero = clip.a, clip.b, 0 * clip.a
    rejected = clip.taken - a * clip.high
    rejected = xp.where(rejected > 4 * _EPS * clip.taken, rejected, zero)
    surplus = b * clip.low - clip.kept
    # A draw from b q - p is scaled to what is rejected, and with it how far h is below b q.
    drawn = b * rejected / xp.where(surplus > 0, surplus, zero)
    ends = xp.stack([a, b, xp.where(rejected > 0, drawn, b)])
    f = divergence.perspective(ends[:2, ...], 1 + 0 * ends[:2, ...], xp)
    t = xp.where(ends > _EPS, ends - 1, 0 * ends + _EPS - 1)
    slope = divergence.generator(t, xp)[1]
    slope_a, slope_b, slope_drawn = (slope[i, ...] for i in range(3))
    value = xp.where(clip.high > 0, clip.high * f[0, ...], zero) + clip.low * f[1, ...]
    value = value + clip.between
    # Below 1/2 a ratio r as 1 + t is off by an ulp of 1, unless a dual takes 1/r.
    low = b * clip.low
    if divergence.dual is None:
        low = xp.where(b < 0.5, clip.low + 2 * clip.moved, low)
    hidden = a * clip.high * slope_a - (low + clip.taken) * slope_b
    value = value + ulps * (value + hidden + clip.moved)
    # Off by `lost`, the surplus shares out what is rejected wrongly by lost / surplus.
    lost = ulps * (b * clip.low + clip.kept)
    unbalanced = (rejected - surplus) * slope_drawn
    unbalanced = xp.where(unbalanced > 0, unbalanced, zero) + lost * (lost / surplus)
    unbalanced = xp.where(surplus > 0, unbalanced, math.inf)
    value = value + xp.where(rejected > 0, unbalanced, zero)
    return value, clip.high * (slope_a - slope_b)


class _Family(RatioOrder):
    """The clip family on two rows."""

    def __init__(
        self, draft: Array, target: Array, xp: Namespace, divergence: Divergence | None = None
    ) -> None:
        """Sort the rows."""
        super().__init__(draft, target, xp, divergence)
        self.q_above, self.p_above, _ = self.above(1 + 0 * self.q_total)

    def clip(self, a: Array) -> _Clip:
        """The member of the family with upper end a >= 1; its b balances the mass."""
        xp = self.xp
        high, p_high, between = self.above(a)
        rejected = p_high - a * high
        j = self.last(self.raised <= rejected[..., None])
        some = self.block_tokens(j)
        q_sum = self.at(self.q_before, j)[..., None] + cumulative_sum(xp, some.q)
        p_sum = self.at(self.p_before, j)[..., None] + cumulative_sum(xp, some.p)
        i = self.last(some.ratio * q_sum - p_sum <= rejected[..., None])
        b = (rejected + self.at(p_sum, i)) / self.at(q_sum, i)
        b = xp.minimum(b, 1 + 0 * b)
        j = self.block(b)
        some = self.block_tokens(j)
        below = some.ratio <= b[..., None]
        low = self.at(self.q_before, j) + self._total(below, some.q)
        kept = self.at(self.p_before, j) + self._total(below, some.p)
        if self.divergence is not None:
            inside = (some.ratio < 1) & ~below
            between = between + self.at(self.falling, j + 1) + self._total(inside, some.cost)
        moved = 2 * (self.p_above - self.q_above) - (p_high - high) - (low - kept)
        masses = (x / self.q_total for x in (low, kept, high, p_high, moved, between))
        return _Clip(a, b, *masses)

    def ends(self, a: Array) -> tuple[Array, Array]:
        """a (at least 1) and its b, for the rows as they were given."""
        clip = self.clip(self.xp.where(a > 1, a, 1 + 0 * a))
        return clip.a * self.row_scale, clip.b * self.row_scale

    def largest(
        self, measure: Callable[[_Clip], tuple[Array, Array]], goal: Array
    ) -> tuple[Array, Array]:
        """The ends with the largest a whose measure, which rises with a, is <= goal.

        `measure` returns its value and its derivative in a.
        """
        xp, one = self.xp, 1 + 0 * self.row_scale
        ratio = self.block_tokens(self.block(HIGHEST * one)).ratio
        top = xp.max(xp.where(ratio < math.inf, ratio, 0 * one[..., None]), axis=-1)
        top = xp.minimum(top, FAR * one)
        whole = self.clip(top)
        free = measure(whole)[0] <= goal
        room = xp.where(top > 1, top - 1, _EPS * one)
        low, high = _EPS / room, one / _EPS
        # Near a = 1 an f-divergence with f''(1) = 1 is s^2 Q (1 + Q/(1-Q)) / 2, Q above 1.
        above = self.q_above / self.q_total
        s = xp.sqrt(2 * goal * (1 - above) / above)
        odds = xp.where((s > _EPS) & (s < room), s / (room - s), xp.sqrt(low) * xp.sqrt(high))
        # A row that has arrived stays as it is, whatever the rest of its batch still needs.
        best, best_b, done = 0 * one, one, free | (goal <= 0)
        for _ in range(_STEPS):
            s = room / (1 + 1 / odds)
            clip = self.clip(1 + s)
            value, slope = measure(clip)
            within = value <= goal
            better = within & ~done
            best, best_b = xp.where(better, s, best), xp.where(better, clip.b, best_b)
            low, high = xp.where(within, odds, low), xp.where(within, high, odds)
            # Aim below the goal by what the spacing of floats at a = 1 + s may move the measure.
            slack = xp.minimum(2.0**-36 + 8 * _EPS / s, one / 8)
            done = done | (within & (value >= goal * (1 - 4 * slack)))
            if not possible(xp, ~done):
                break
            gap = xp.log(goal * (1 - slack)) - xp.log(value)
            newton = odds * xp.exp(gap * value * (1 + odds) / (s * slope))
            inside = (newton > low) & (newton < high)
            odds = xp.where(inside, newton, xp.sqrt(low) * xp.sqrt(high))
        # Where the draft may be kept as it is, a is raised by the rounding of a * q.
        a = xp.where(free & (top > 1), top * (1 + 4 * _EPS), 1 + best)
        b = xp.where(free, whole.b, best_b)
        return a * self.row_scale, b * self.row_scale
