"""Walking along a draft token by token: test, stop at the first rejection, draw one more token."""

from __future__ import annotations

from dataclasses import dataclass

from cactus_rules._arrays import Array, Namespace, float64, gather
from cactus_rules._positions import Positions, read_positions, recovered_weights, sane_target
from cactus_rules.residual import draw_index
from cactus_rules.rules import Rule


@dataclass(frozen=True)
class Walk:
    """What a walk along the draft found."""

    token_ids: Array
    num_accepted: Array
    length: Array
    at: Positions
    status: Array
    q_emitted: Array


def token_walk(
    xp: Namespace,
    rule: Rule,
    draft: Array | None,
    target: Array,
    tokens: Array,
    length: Array,
    u: Array,
) -> Walk:
    """Test token after token; stop at the first rejection."""
    k = tokens.shape[-1]
    at = read_positions(xp, rule, draft, target[..., :k, :], tokens)
    position = arange(xp, k, tokens)
    drafted = position < length[..., None]
    kept = drafted & (u[..., :k, 0] * at.p_n < at.numbers.cap)
    stop = xp.sum(xp.astype(before(xp, ~kept), xp.int64), axis=-1)
    weights, added = _final_weights(xp, draft, target, at, stop, length)
    return finish_walk(xp, target, at, weights, added, stop, length, u)


def finish_walk(
    xp: Namespace,
    target: Array,
    at: Positions,
    weights: Array,
    added: Array,
    stop: Array,
    length: Array,
    u: Array,
) -> Walk:
    """Draw the last token from `weights (..., V)` and put the emitted tokens in a row.

    `stop (...)` is the number of accepted tokens, `added (...)` the status of the drawn one.
    """
    k = at.token.shape[-1]
    last = draw_index(xp, weights, at_position(xp, u[..., 1], stop))
    position = arange(xp, k + 1, at.token)
    padded = xp.concat([at.token, xp.zeros_like(stop)[..., None]], axis=-1)
    here = position == stop[..., None]
    token_ids = xp.where(position < stop[..., None], padded, xp.full_like(padded, -1))
    token_ids = xp.where(here, last[..., None], token_ids)
    seen = (position <= stop[..., None]) & (position < length[..., None])
    status = xp.concat([at.status, xp.zeros_like(stop)[..., None]], axis=-1)
    status = xp.where(seen, status, xp.zeros_like(status))
    fresh = added[..., None] - (added[..., None] & status)
    status = xp.where(here, status + fresh, status)
    q_last = gather(xp, row_at(xp, target, stop), last)
    q_padded = xp.concat([at.q_n, 0 * q_last[..., None]], axis=-1)
    return Walk(token_ids, stop, length, at, status, xp.where(here, q_last[..., None], q_padded))


def _final_weights(
    xp: Namespace, draft: Array | None, target: Array, at: Positions, stop: Array, length: Array
) -> tuple[Array, Array]:
    """Weights `(..., V)` of the recovered token at the stop, or the row of the bonus token."""
    q_row = row_at(xp, target, stop)
    bonus, bonus_status = sane_target(xp, float64(xp, q_row))
    if at.token.shape[-1] == 0:
        return bonus, bonus_status
    rejected = stop < length
    k = xp.minimum(stop, xp.full_like(stop, at.token.shape[-1] - 1))
    one = at.select(lambda values: at_position(xp, values, k))
    p_row = None if draft is None else row_at(xp, draft, k)
    weights, status = recovered_weights(xp, p_row, q_row, one)
    return (
        xp.where(rejected[..., None], weights, bonus),
        xp.where(rejected, status, bonus_status),
    )


def telemetry(xp: Namespace, walk: Walk) -> tuple[Array, Array]:
    """The sums behind `kl_spent` and `tv_spent`, from the two numbers already read."""
    at, cap = walk.at, walk.at.numbers.cap
    position = arange(xp, at.token.shape[-1], at.token)
    accepted = position < walk.num_accepted[..., None]
    tested = (position <= walk.num_accepted[..., None]) & (position < walk.length[..., None])
    zero = 0 * at.q_n
    ratio = xp.where(cap < at.p_n, cap, at.p_n) / xp.where(at.q_n > 0, at.q_n, 1.0 + zero)
    kl = xp.where(accepted & (ratio > 1), xp.log(xp.where(ratio > 1, ratio, 1.0 + zero)), zero)
    kept, lossless = cap / at.p_n, at.q_n / at.p_n
    gain = xp.where(kept < 1, kept, 1.0 + zero) - xp.where(lossless < 1, lossless, 1.0 + zero)
    return xp.sum(kl, axis=-1), xp.sum(xp.where(tested, gain, zero), axis=-1)


def before(xp: Namespace, event: Array) -> Array:
    """True at the positions before the first True of `event`, along the last axis."""
    if event.shape[-1] == 0:
        return event
    return xp.cumulative_sum(xp.astype(event, xp.int64), axis=-1) == 0


def arange(xp: Namespace, n: int, like: Array) -> Array:
    return xp.arange(n, dtype=xp.int64, device=getattr(like, "device", None))


def at_position(xp: Namespace, values: Array, k: Array) -> Array:
    """`values[..., k]` for one position per request."""
    values = xp.broadcast_to(values, (*k.shape, values.shape[-1]))
    return xp.take_along_axis(values, k[..., None], axis=-1)[..., 0]


def row_at(xp: Namespace, rows: Array, k: Array) -> Array:
    """`rows[..., k, :]` for one position per request."""
    return xp.take_along_axis(rows, k[..., None, None], axis=-2)[..., 0, :]
