"""Walking along a draft token by token: test, stop at the first rejection, draw one more token."""

from __future__ import annotations

from dataclasses import dataclass

from cactus_rules._arrays import (
    Array,
    Namespace,
    Rows,
    cumulative_sum,
    float64,
    gather,
    is_numpy,
    is_torch,
    kernels_of,
)
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


@dataclass(frozen=True)
class Last:
    """Where a walk stopped and the token drawn there. All fields have the requests' shape."""

    stop: Array
    """Number of accepted tokens."""
    token: Array
    q: Array
    """Target probability of the token."""
    status: Array
    """`Status` bits of the rows that it was drawn from."""


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
    at = read_positions(xp, rule, draft, first(target, tokens.shape[-1]), tokens)
    if kernels := kernels_of(target):
        last = kernels.decide(draft, target, at, length, u)
    else:
        last = decide_plainly(xp, draft, target, at, length, u)
    return finish_walk(xp, at, last, length)


def decide_plainly(
    xp: Namespace, draft: Array | None, target: Array, at: Positions, length: Array, u: Array
) -> Last:
    """The accept test at all positions, then the draw from one row pair per request."""
    k = at.token.shape[-1]
    drafted = arange(xp, k, at.token) < length[..., None]
    kept = drafted & (u[..., :k, 0] * at.p_n < at.numbers.cap)
    stop = xp.sum(xp.astype(before(xp, ~kept), xp.int64), axis=-1)
    q_row = row_at(xp, target, stop)
    if k == 0:
        weights, status = sane_target(xp, float64(xp, q_row))
    else:
        tested = xp.minimum(stop, xp.full_like(stop, k - 1))
        one = at.select(lambda values: at_position(xp, values, tested))
        p_row = None if draft is None else row_at(xp, draft, tested)
        weights, status = recovered_weights(xp, p_row, q_row, one, stop >= length)
    return draw_last(xp, q_row, weights, status, stop, u)


def draw_last(
    xp: Namespace, q_row: Array, weights: Array, status: Array, stop: Array, u: Array
) -> Last:
    """The token drawn from `weights (..., V)`, where the target's row is `q_row`."""
    token = draw_index(xp, weights, at_position(xp, u[..., 1], stop))
    return Last(stop, token, gather(xp, q_row, token), status)


def finish_walk(xp: Namespace, at: Positions, last: Last, length: Array) -> Walk:
    """Put the emitted tokens, their target probabilities and the status in a row."""
    stop = last.stop[..., None]
    position = arange(xp, at.token.shape[-1] + 1, at.token)
    padded = xp.concat([at.token, xp.zeros_like(stop)], axis=-1)
    here = position == stop
    token_ids = xp.where(position < stop, padded, xp.full_like(padded, -1))
    token_ids = xp.where(here, last.token[..., None], token_ids)
    seen = (position <= stop) & (position < length[..., None])
    status = xp.concat([at.status, xp.zeros_like(stop)], axis=-1)
    status = xp.where(seen, status, xp.zeros_like(status))
    added = last.status[..., None]
    status = xp.where(here, status + (added - (added & status)), status)
    q_last = last.q[..., None]
    q_emitted = xp.where(here, q_last, xp.concat([at.q_n, 0 * q_last], axis=-1))
    return Walk(token_ids, last.stop, length, at, status, q_emitted)


def telemetry(xp: Namespace, walk: Walk) -> tuple[Array, Array]:
    """The sums behind `kl_spent` and `tv_spent`, from the two numbers already read."""
    at, cap = walk.at, walk.at.numbers.cap
    position = arange(xp, at.token.shape[-1], at.token)
    accepted = position < walk.num_accepted[..., None]
    tested = (position <= walk.num_accepted[..., None]) & (position < walk.length[..., None])
    zero = 0 * at.q_n
    moved = xp.where(cap < at.p_n, cap, at.p_n)
    raised = accepted & (moved > at.q_n) & (at.q_n > 0)
    # By logarithms: the ratio overflows where q is subnormal.
    log_moved, log_q = (xp.log(xp.where(raised, x, 1.0 + zero)) for x in (moved, at.q_n))
    kl = log_moved - log_q
    kept, lossless = cap / at.p_n, at.q_n / at.p_n
    gain = xp.where(kept < 1, kept, 1.0 + zero) - xp.where(lossless < 1, lossless, 1.0 + zero)
    return xp.sum(kl, axis=-1), xp.sum(xp.where(tested, gain, zero), axis=-1)


def before(xp: Namespace, event: Array) -> Array:
    """True at the positions before the first True of `event`, along the last axis."""
    if event.shape[-1] == 0:
        return event
    return cumulative_sum(xp, xp.astype(event, xp.int64)) == 0


def arange(xp: Namespace, n: int, like: Array) -> Array:
    return xp.arange(n, dtype=xp.int64, device=getattr(like, "device", None))


def at_position(xp: Namespace, values: Array, k: Array) -> Array:
    """`values[..., k]` for one position per request."""
    values = xp.broadcast_to(values, (*k.shape, values.shape[-1]))
    return xp.take_along_axis(values, k[..., None], axis=-1)[..., 0]


def row_at(xp: Namespace, rows: Array, k: Array) -> Array:
    """`rows[..., k, :]` for one position per request."""
    if isinstance(rows, Rows):
        return rows.row_at(k)
    if k.ndim == 0 or not (is_numpy(xp) or is_torch(xp)):
        return xp.take_along_axis(rows, k[..., None, None], axis=-2)[..., 0, :]
    # The array API has no indexing by several arrays; where there is one, it copies whole rows.
    axes = range(k.ndim)
    grid = (xp.reshape(arange(xp, k.shape[i], k), (-1, *(1,) * (k.ndim - 1 - i))) for i in axes)
    return rows[(*grid, k)]


def first(rows: Array, count: int) -> Array:
    """`rows[..., :count, :]`."""
    return rows.first(count) if isinstance(rows, Rows) else rows[..., :count, :]
