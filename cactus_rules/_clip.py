r"""The clip family h = clip(p, b q, a q): which (a, b) meets a divergence budget or a band width.

Mass balance ties the two ends together:

    sum (b q - p)+  =  sum (p - a q)+  +  (draft mass where q = 0)

so the family has one parameter, a, from 1 (h = q) to max p/q (h = p on the support of q). Tokens
sorted by p/q turn every sum into a difference of cumulative sums. In log(a - 1) the logarithm of a
divergence of h from q is nearly straight, with a slope between 1 and 2; a divergence that is
infinite where h excludes a token grows without bound as a nears max p/q. In the log-odds of a
between the two ends, a few Newton steps in a bracket find the budget; on devices their number is
fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from cactus_rules import divergences
from cactus_rules._arrays import Array, Namespace, asarray, float64, namespace, possible, quiet
from cactus_rules.divergences import Divergence

_EPS = 2.0**-52
_STEPS = 30
_HIGHEST = 1e300


def clip_within_budget(
    draft: Array, target: Array, divergence: Divergence, delta: Array
) -> tuple[Array, Array]:
    """(a, b) for which clip(p, b q, a q) accepts most with D(clip || q) <= delta.

    Rows `(..., V)`, `delta (...)`; returns two float64 arrays `(...)` with b <= 1 <= a, times the
    ratio of the rows' sums where these are not 1.
    """
    xp = namespace(draft, target)
    with quiet(xp):
        rows = _Sorted.of(draft, target, xp)
        budget = float64(xp, asarray(xp, delta, target)) + 0 * rows.row_scale
        if isinstance(divergence, divergences.MaxDivergence):
            return rows.ends(xp.exp(budget) * (1 - 16 * _EPS))
        terms = divergence.perspective(rows.p, rows.q, xp)
        rising = rows.cumulative(xp.where((rows.ratio > 1) & (rows.q > 0), terms, 0 * rows.q))
        falling = rows.tail(xp.where((rows.ratio < 1) & (rows.q > 0), terms, 0 * rows.q))
        ulps = _EPS * (16 + math.sqrt(draft.shape[-1]))

        def spent(clip: _Clip) -> tuple[Array, Array]:
            a, b, one = clip.a, clip.b, 1 + 0 * clip.a
            f_a, f_b = divergence.perspective(a, one, xp), divergence.perspective(b, one, xp)
            slope_a = divergence.generator(a - 1, xp)[1]
            slope_b = divergence.generator(xp.where(b > _EPS, b - 1, _EPS - one), xp)[1]
            value = xp.where(clip.high > 0, clip.high * f_a, 0 * a) + clip.low * f_b
            value = value + rows.at(rising, clip.m) + rows.at(falling, clip.k)
            # What rounding of the terms and of a and b may have hidden counts as spent.
            hidden = a * clip.high * slope_a - b * clip.low * slope_b
            return value + ulps * (value + hidden), clip.high * (slope_a - slope_b)

        return rows.largest(spent, budget)


def clip_within_band(draft: Array, target: Array, width: Array) -> tuple[Array, Array]:
    """(a, b) with log(a/b) = width, or h = p on the support of q where the width allows it."""
    xp = namespace(draft, target)
    with quiet(xp):
        rows = _Sorted.of(draft, target, xp)
        stretch = xp.expm1(float64(xp, asarray(xp, width, target)) + 0 * rows.row_scale)

        def stretched(clip: _Clip) -> tuple[Array, Array]:
            a, b = clip.a, clip.b
            return a / b - 1, (1 + a * clip.high / (b * clip.low)) / b

        return rows.largest(stretched, stretch)


@dataclass(frozen=True, slots=True)
class _Clip:
    """One member of the family: its ends, how many sorted tokens lie at or below each, and the

    target mass outside: `low` at p/q <= b, `high` at p/q > a."""

    a: Array
    b: Array
    k: Array
    m: Array
    low: Array
    high: Array


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Both rows, normalised and sorted by p/q, with the cumulative sums that the clip needs.

    Sums have V + 1 entries: entry i of a `_sum` is over the first i tokens, of a `_tail` over all
    but these.
    """

    xp: Namespace
    p: Array
    q: Array
    ratio: Array
    q_sum: Array
    p_sum: Array
    q_tail: Array
    p_tail: Array
    lower_break: Array
    row_scale: Array

    @classmethod
    def of(cls, draft: Array, target: Array, xp: Namespace) -> _Sorted:
        p, q = xp.broadcast_arrays(float64(xp, draft), float64(xp, target))
        p_total, q_total = xp.sum(p, axis=-1), xp.sum(q, axis=-1)
        p, q = p / p_total[..., None], q / q_total[..., None]
        # A target probability that small beside the draft's may as well be 0.
        q = xp.where(p / q > _HIGHEST, 0 * q, q)
        ratio = xp.where(q > 0, p / q, math.inf)
        order = xp.argsort(ratio, axis=-1)
        p, q, ratio = (xp.take_along_axis(row, order, axis=-1) for row in (p, q, ratio))
        rows = cls(xp, p, q, ratio, p, p, p, p, p, p_total / q_total)
        q_sum, p_sum = rows.cumulative(q), rows.cumulative(p)
        finite = xp.where(q > 0, ratio, 0 * q)
        lower = xp.where(q > 0, finite * q_sum[..., 1:] - p_sum[..., 1:], math.inf)
        return cls(
            xp, p, q, ratio, q_sum, p_sum, rows.tail(q), rows.tail(p), lower, rows.row_scale
        )  # fmt: skip

    def cumulative(self, row: Array) -> Array:
        """Sums over the first i tokens."""
        zero = 0 * row[..., :1]
        return self.xp.concat([zero, self.xp.cumulative_sum(row, axis=-1)], axis=-1)

    def tail(self, row: Array) -> Array:
        """Sums over all but the first i tokens, added from the end."""
        return self.xp.flip(self.cumulative(self.xp.flip(row, axis=-1)), axis=-1)

    def at(self, sums: Array, index: Array) -> Array:
        return self.xp.take_along_axis(sums, index[..., None], axis=-1)[..., 0]

    def count(self, condition: Array) -> Array:
        return self.xp.count_nonzero(condition, axis=-1)

    def clip(self, a: Array) -> _Clip:
        """The member of the family with upper end a >= 1; its b balances the mass."""
        m = self.count(self.ratio <= a[..., None])
        high = self.at(self.q_tail, m)
        rejected = self.at(self.p_tail, m) - a * high
        # At least the first token counts, whatever rounding made of a zero.
        k = self.count(self.lower_break <= rejected[..., None])
        k = k + self.xp.astype(k == 0, k.dtype)
        b = (rejected + self.at(self.p_sum, k)) / self.at(self.q_sum, k)
        b = self.xp.minimum(b, 1 + 0 * b)
        k = self.count(self.ratio <= b[..., None])
        return _Clip(a, b, k, m, self.at(self.q_sum, k), high)

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
        top = xp.max(xp.where(self.q > 0, self.ratio, 0 * self.q), axis=-1)
        free = measure(self.clip(top))[0] <= goal
        room = xp.where(top > 1, top - 1, _EPS * one)
        low, high = _EPS / room, one / _EPS
        # Near a = 1 an f-divergence with f''(1) = 1 is s^2 Q (1 + Q/(1-Q)) / 2, Q above 1.
        above = self.clip(one).high
        s = xp.sqrt(2 * goal * (1 - above) / above)
        odds = xp.where((s > _EPS) & (s < room), s / (room - s), xp.sqrt(low) * xp.sqrt(high))
        # A row that has arrived stays as it is, whatever the rest of its batch still needs.
        best, done = 0 * one, free | (goal <= 0)
        for _ in range(_STEPS):
            s = room / (1 + 1 / odds)
            value, slope = measure(self.clip(1 + s))
            within = value <= goal
            best = xp.where(within & ~done, s, best)
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
        return self.ends(xp.where(free, top * (1 + 4 * _EPS), 1 + best))
