"""Two rows in the order of p/q, and sums over all tokens on one side of a ratio."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cactus_rules._arrays import Array, Namespace, cumulative_sum, is_numpy
from cactus_rules.divergences import Divergence

HIGHEST = 1e300
"""Ratios beyond it count as infinite: the target excludes the token."""

_PIECE = 1 << 13
"""Tokens of a row that are summed at a time on the CPU: what needs no fresh pages of memory."""

_SHORT = 1 << 12
"""Tokens up to which a row is one block."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens `(..., n)` in rising order of p/q, and q f(p/q) where there is a divergence."""

    p: Array
    q: Array
    ratio: Array
    cost: Array


class RatioOrder:
    """Both rows in the order of p/q, known by the sums over blocks of tokens.

    A sum over all tokens on one side of a ratio is that of whole blocks, computed once, and of a
    part of one block, which is read again. Entry j of a `_before` is over the blocks before block
    j, of a `_from` over the others; `rising` and `falling` add costs from p/q = 1 outwards.
    """

    def __init__(
        self, draft: Array, target: Array, xp: Namespace, divergence: Divergence | None = None
    ) -> None:
        """Sort the rows and sum over the blocks."""
        self.xp, self.divergence = xp, divergence
        self.p, self.q = xp.broadcast_arrays(draft, target)
        self.q_total = xp.sum(self.q, axis=-1)
        self.row_scale = xp.sum(self.p, axis=-1) / self.q_total
        self.zero = 0 * self.q_total[..., None]
        ratio = self.p / self.row_scale[..., None]
        ratio /= self.q
        self.order = order_of(ratio, xp)
        self.only: Tokens | None = None
        width = self.q.shape[-1]
        self.size = 1 << min(width.bit_length() // 2, 7) if width > _SHORT else width
        device = getattr(self.q, "device", None)
        self.offsets = xp.arange(self.size, dtype=xp.int64, device=device)
        if width <= _SHORT:
            self.only = self.tokens(self.order)
            sums = [self._blocks(self.only)]
        else:
            step = _PIECE if is_numpy(xp) else width
            ids = (self.order[..., i : i + step] for i in range(0, width, step))
            sums = [self._blocks(self.tokens(some)) for some in ids]
        self.first, p, q, cost = (xp.concat(each, axis=-1) for each in zip(*sums, strict=True))
        self.p_before, self.q_before = self._before(p), self._before(q)
        self.p_from, self.q_from = self._from(p), self._from(q)
        # b = p/q of a token raises those before it by (p/q) sum q - sum p.
        self.raised = self.first * self.q_before[..., :-1] - self.p_before[..., :-1]
        if divergence is not None:
            # The block that p/q = 1 splits has costs on either side.
            j = self.block(1 + 0 * self.q_total)
            split = self.block_tokens(j)
            up, down = (self._total(x, split.cost) for x in (split.ratio > 1, split.ratio < 1))
            here = xp.arange(q.shape[-1], dtype=xp.int64, device=device)
            j, zero = j[..., None], 0 * q
            up, down = (xp.where(here == j, x[..., None], cost) for x in (up, down))
            self.rising = self._before(xp.where(here >= j, up, zero))
            self.falling = self._from(xp.where(here <= j, down, zero))

    def tokens(self, ids: Array, real: Array | None = None) -> Tokens:
        """The tokens `ids (..., n)`; those that are not `real` have no mass."""
        xp, record = self.xp, self.divergence
        p, q = take(xp, self.p, ids), take(xp, self.q, ids)
        p = p / self.row_scale[..., None]
        ratio = p / q
        known = ratio <= HIGHEST
        if real is not None:
            known, p = known & real, xp.where(real, p, 0 * p)
        # A target probability that small beside the draft's may as well be 0.
        q, ratio = xp.where(known, q, 0 * q), xp.where(known, ratio, math.inf)
        if record is None:
            return Tokens(p, q, ratio, q)
        dual = record.dual
        t = (p - q) / q if dual is None else (q - p) / p
        cost = q * record.generator(t, xp)[0] if dual is None else p * dual.generator(t, xp)[0]
        # What exclusion costs where p is lost beside q.
        cost = xp.where((t > -1) & (t < math.inf), cost, q * record.at_zero)
        return Tokens(p, q, ratio, cost)

    def _blocks(self, of: Tokens) -> tuple[Array, ...]:
        """The first p/q of each block, and the sums of p, q and costs."""
        return of.ratio[..., :: self.size], *map(self._sums, (of.p, of.q, of.cost))

    def _sums(self, row: Array) -> Array:
        whole = row.shape[-1] // self.size * self.size
        blocks = self.xp.reshape(row[..., :whole], (*row.shape[:-1], whole // self.size, self.size))
        sums = self.xp.sum(blocks, axis=-1)
        if whole == row.shape[-1]:
            return sums
        rest = self.xp.sum(row[..., whole:], axis=-1)[..., None]
        return self.xp.concat([sums, rest], axis=-1)

    def _before(self, row: Array) -> Array:
        return self.xp.concat([self.zero, cumulative_sum(self.xp, row)], axis=-1)

    def _from(self, row: Array) -> Array:
        return self.xp.flip(self._before(self.xp.flip(row, axis=-1)), axis=-1)

    def _total(self, condition: Array, row: Array) -> Array:
        return self.xp.sum(self.xp.where(condition, row, self.zero), axis=-1)

    def at(self, sums: Array, index: Array) -> Array:
        return take(self.xp, sums, index[..., None])[..., 0]

    def last(self, condition: Array) -> Array:
        """The last place of a condition that holds up to some place; 0 if it holds nowhere."""
        count = self.xp.count_nonzero(condition, axis=-1)
        return count - self.xp.astype(count > 0, count.dtype)

    def block(self, ratio: Array) -> Array:
        """The block that has the last token with p/q <= ratio."""
        return self.last(self.first <= ratio[..., None])

    def block_tokens(self, j: Array) -> Tokens:
        """The tokens of block j."""
        if self.only is not None:
            return self.only
        xp, width, real = self.xp, self.order.shape[-1], None
        place = j[..., None] * self.size + self.offsets
        if width % self.size:
            real = place < width
            place = xp.where(real, place, 0 * place)
        return self.tokens(take(xp, self.order, place), real)

    def above(self, a: Array) -> tuple[Array, Array, Array]:
        """The masses q and p at p/q > a, and the cost of what lies between 1 and a."""
        j = self.block(a)
        some = self.block_tokens(j)
        above = some.ratio > a[..., None]
        q, p = self._total(above, some.q), self._total(above, some.p)
        q, p = q + self.at(self.q_from, j + 1), p + self.at(self.p_from, j + 1)
        if self.divergence is None:
            return q, p, 0 * a
        cost = self._total((some.ratio > 1) & ~above, some.cost)
        return q, p, cost + self.at(self.rising, j)


def order_of(ratio: Array, xp: Namespace) -> Array:
    """Ids by rising ratio, equal ones by rising id; unknown and excessive ratios are the highest.

    May overwrite `ratio`.
    """
    if not is_numpy(xp):
        ratio = xp.where(ratio <= HIGHEST, ratio, math.inf)
        return xp.argsort(ratio, axis=-1, stable=True)
    # Values sort several times faster than ids: the last bits of each ratio make room for its id.
    # Ratios that differ in these bits alone may come out of order, which is seen and put right.
    np.fmin(ratio, 2 * HIGHEST, out=ratio)
    bits = np.int64((1 << (ratio.shape[-1] - 1).bit_length()) - 1)
    keys = ratio.view(np.int64) & ~bits
    keys |= np.arange(ratio.shape[-1])
    keys.view(np.float64).sort(axis=-1)
    keys &= bits
    found = np.take_along_axis(ratio, keys, axis=-1)
    if np.all(found[..., 1:] >= found[..., :-1]):
        return keys
    return np.take_along_axis(keys, np.argsort(found, axis=-1, stable=True), axis=-1)


def take(xp: Namespace, rows: Array, index: Array) -> Array:
    """`rows[..., index]`, without the detour that numpy makes for one row."""
    if rows.ndim == 1 and is_numpy(xp):
        return rows[index]
    return xp.take_along_axis(rows, index, axis=-1)
