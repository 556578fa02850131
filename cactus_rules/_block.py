"""Block verification: accept the longest prefix that a joint likelihood ratio allows.

With h the law that the rule emits at each position, p the draft's, and n_1 .. n_m the draft [1]:

    r_0 = 1,  r_i = min(1, r_{i-1} h(n_i)/p(n_i)),  Z_i = sum (r_{i-1} h - p)+ at position i
    t_i = Z_{i+1} / (Z_{i+1} + 1 - r_i) for i < m,  t_m = r_m

accept the largest i with u_i < t_i; the next token has the law of (r_i h - p)+. Each coin belongs
to a position of this target call, and coins of tokens that were looked at and discarded are not
used again. The law of the emitted tokens is that of h, as when walking token by token.

[1] arXiv 2403.10444, Algorithm 2; there h is the target.
"""

from __future__ import annotations

from dataclasses import replace

from cactus_rules._arrays import Array, Namespace, float64, positive
from cactus_rules._positions import Positions, Status, read_positions, sane_target
from cactus_rules._walk import Walk, arange, at_position, draw_last, finish_walk, first, row_at
from cactus_rules.residual import residual_weights
from cactus_rules.rules import Rule
from cactus_rules.rules.base import Drafted


def block_walk(
    xp: Namespace,
    rule: Rule,
    draft: Array | None,
    target: Array,
    tokens: Array,
    length: Array,
    u: Array,
) -> Walk:
    """Accept the longest prefix; draw one more token. Arguments as for the token walk."""
    k = tokens.shape[-1]
    at = read_positions(xp, rule, draft, first(target, k), tokens)
    q, bad_target = sane_target(xp, float64(xp, target))
    at = replace(at, status=at.status | bad_target[..., :k])
    p, h = _laws(xp, rule, draft, q[..., :k, :], at)
    ratio = _ratio(xp, p, h, at)
    drafted = arange(xp, k, tokens) < length[..., None]
    stop = xp.zeros_like(length)
    r = 1.0 + 0.0 * xp.astype(length, xp.float64)
    kept_r = r
    for i in range(k):
        r = xp.minimum(r * ratio[..., i], 1.0 + 0 * r)
        threshold = r
        if i + 1 < k:
            surplus = r[..., None] * h[..., i + 1, :] - p[..., i + 1, :]
            z = xp.sum((surplus + abs(surplus)) / 2, axis=-1)
            rest = z + 1 - r
            t = xp.where(rest > 0, z / xp.where(rest > 0, rest, 1.0 + 0 * rest), 1.0 + 0 * rest)
            threshold = xp.where(length == i + 1, r, t)
        passed = drafted[..., i] & (u[..., i, 0] < threshold)
        stop = xp.where(passed, xp.full_like(stop, i + 1), stop)
        kept_r = xp.where(passed, r, kept_r)
    weights = _weights(xp, p, h, q, kept_r, stop, length)
    status = at_position(xp, bad_target, stop)
    last = draw_last(xp, row_at(xp, target, stop), weights, status, stop, u)
    return finish_walk(xp, at, last, length)


def _laws(
    xp: Namespace, rule: Rule, draft: Array | None, q: Array, at: Positions
) -> tuple[Array, Array]:
    """Draft rows as they are read, and the laws that the rule emits, both `(..., K, V)`."""
    ids = arange(xp, q.shape[-1], at.token)
    p = xp.astype(ids == at.token[..., None], xp.float64) + 0 * q
    if draft is not None:
        given = float64(xp, draft)
        total = xp.sum(given, axis=-1)
        sane = xp.all((given >= 0) & xp.isfinite(given), axis=-1) & (total > 0) & ~at.one_hot
        p = xp.where(sane[..., None], given / total[..., None], p)
    # Before a token that no row has, nothing was drafted.
    p = xp.where(((at.status & int(Status.TOKEN_OUTSIDE)) > 0)[..., None], 0 * p, p)
    every = Drafted(xp, p, q, ids, p[..., None, :], q[..., None, :])
    cap = rule.aligned().numbers(every).cap
    cap = xp.where((q > 0) & (cap >= 0), cap + 0 * q, 0 * q)
    kept = xp.where(cap < p, cap, p)
    weights = residual_weights(xp, p, q, at.token, at.numbers)
    missing, total = 1 - xp.sum(kept, axis=-1), xp.sum(weights, axis=-1)
    # A draft and a target that are one-hot at the same token leave no residual, and need none.
    residual = weights / xp.where(total > 0, total, 1.0)[..., None]
    h = kept + positive(xp, missing)[..., None] * residual
    return p, h / xp.sum(h, axis=-1)[..., None]


def _ratio(xp: Namespace, p: Array, h: Array, at: Positions) -> Array:
    """h(n)/p(n) at the drafted tokens, 0 where there is none."""
    p_n, h_n = (xp.take_along_axis(row, at.token[..., None], axis=-1)[..., 0] for row in (p, h))
    return xp.where(p_n > 0, h_n / xp.where(p_n > 0, p_n, 1.0 + 0 * p_n), 0 * p_n)


def _weights(
    xp: Namespace, p: Array, h: Array, q: Array, r: Array, stop: Array, length: Array
) -> Array:
    """(r h - p)+ at the stop, or the target's row after the whole draft."""
    bonus = row_at(xp, q, stop)
    if p.shape[-2] == 0:
        return bonus
    k = xp.minimum(stop, xp.full_like(stop, p.shape[-2] - 1))
    h_row = row_at(xp, h, k)
    surplus = r[..., None] * h_row - row_at(xp, p, k)
    weights = (surplus + abs(surplus)) / 2
    weights = xp.where((xp.sum(weights, axis=-1) > 0)[..., None], weights, h_row)
    return xp.where((stop < length)[..., None], weights, bonus)
