# mypy: ignore-errors
"""The Triton programs that search for h = clip(p, b q, a q), of most acceptance in a KL budget.

`cactus_rules._clip` sorts the rows; here nothing is sorted. A pass reads both rows once and gives,
for one pair of ends (a, b), the masses beyond them and the cost of what lies between; a step
chooses the next pair. With R(a) = sum (p - a q)+, what is rejected, and L(b) = sum (b q - p)+, the
surplus that it is drawn from, equal for the clip of a, and f(r) = r log r - r + 1:

* what the clip of a costs lies between two numbers that any b gives. It is convex in R = L, so that
  it is above the tangent at b, and it falls as R = L rises;
* L is convex, so that all its tangents bound the b with L(b) = R(a) from above.

So both ends move at once: a by Newton's method for the log of the divergence in the log-odds of a
between 1 and max p/q, in the bracket that the two numbers prove, and b towards the root for that a.
A pair is an answer only if the law that is emitted with that very b keeps the budget.
"""

from __future__ import annotations

import triton
import triton.language as tl

from cactus_rules._clip import FAR
from cactus_rules._ratio_order import HIGHEST
from cactus_rules.adapters.kernels.programs import _probability

TOTALS, ONE, PAIR = (tl.constexpr(i) for i in range(3))
"""The kinds of a pass: sums of the rows; sums at a = b = 1; sums at a pair of ends."""

SUMS = tl.constexpr(7)
"""Sums that a pass takes of each block."""

(
    P_TOTAL, Q_TOTAL, BEST_A, BEST_B, A, B, DONE, PASSES,
    SURPLUS, EXCLUDED, TOP, ODDS, LOW, LOW_A, LOW_RIGHT, LOW_MASS, HIGH,
    UPPER_B, UPPER, UPPER_MASS, LOWER_B, LOWER,
) = (tl.constexpr(i) for i in range(22))  # fmt: skip
"""Numbers that a search keeps, by their places."""

STATE = tl.constexpr(22)

_INF = tl.constexpr(float("inf"))
_EPS = tl.constexpr(2.0**-52)
_TINY = tl.constexpr(2.0**-1000)
_HIGHEST = tl.constexpr(HIGHEST)
_FAR = tl.constexpr(FAR)
# The odds from which an end counts as max p/q.
_WHOLE = tl.constexpr(2.0**60)


@triton.jit
def _cost(t):
    """f(1 + t) and its derivative, log(1 + t), for t >= -1."""
    r = 1.0 + t
    log = tl.where(r == 1.0, t, tl.log(r) * (t / (r - 1.0)))
    return tl.where(r > 0.0, r * log - t, 1.0), log


@triton.jit
def sums(
    draft_ptr,
    target_ptr,
    draft_normaliser_ptr,
    target_normaliser_ptr,
    state_ptr,
    sums_ptr,
    draft_b,
    draft_k,
    draft_v,
    target_b,
    target_k,
    target_v,
    K,
    V,
    PASS: tl.constexpr,
    LOGITS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A pass over one block of one row pair, unless its search is done."""
    pair = tl.program_id(0).to(tl.int64)
    block = tl.program_id(1).to(tl.int64)
    state = state_ptr + pair * STATE
    if tl.load(state + DONE) == 0.0:
        ids = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        inside = ids < V
        draft = draft_ptr + pair // K * draft_b + pair % K * draft_k + ids * draft_v
        target = target_ptr + pair // K * target_b + pair % K * target_k + ids * target_v
        p_normaliser = 0.0
        q_normaliser = 0.0
        if LOGITS:
            p_normaliser = tl.load(draft_normaliser_ptr + pair)
            q_normaliser = tl.load(target_normaliser_ptr + pair)
        p = _probability(tl.load(draft, mask=inside, other=0.0), p_normaliser, LOGITS)
        q = _probability(tl.load(target, mask=inside, other=0.0), q_normaliser, LOGITS)
        p = tl.where(inside, p, 0.0)
        q = tl.where(inside, q, 0.0)
        out = sums_ptr + (pair * tl.num_programs(1) + block) * SUMS
        if PASS == TOTALS:
            tl.store(out, tl.sum(p, axis=0))
            tl.store(out + 1, tl.sum(q, axis=0))
        else:
            p /= tl.load(state + P_TOTAL)
            q /= tl.load(state + Q_TOTAL)
            # A target probability that small beside the draft's may as well be 0.
            ratio = p / q
            known = ratio <= _HIGHEST
            q = tl.where(known, q, 0.0)
            t = tl.where(known, (p - q) / q, 0.0)
            cost = q * _cost(t)[0]
            a = tl.load(state + A)
            b = tl.load(state + B)
            above = p > a * q
            below = known & (p <= b * q)
            tl.store(out, tl.sum(tl.where(above, q, 0.0), axis=0))
            tl.store(out + 1, tl.sum(tl.where(above, p, 0.0), axis=0))
            tl.store(out + 2, tl.sum(tl.where(below, q, 0.0), axis=0))
            if PASS == ONE:
                tl.store(out + 3, tl.sum(tl.where(known, 0.0, p), axis=0))
                tl.store(out + 4, tl.sum(tl.where(above, cost, 0.0), axis=0))
                tl.store(out + 5, tl.sum(tl.where(above, 0.0, cost), axis=0))
                tl.store(out + 6, tl.max(tl.where(known, ratio, 0.0), axis=0))
            else:
                tl.store(out + 3, tl.sum(tl.where(below, p, 0.0), axis=0))
                tl.store(out + 4, tl.sum(tl.where(above | below, 0.0, cost), axis=0))


@triton.jit
def step(
    state_ptr,
    sums_ptr,
    delta_ptr,
    rounding,
    BLOCKS,
    PASS: tl.constexpr,
    BLOCKS_PAD: tl.constexpr,
):
    """What follows from a pass for one row pair: the ends to try next, or that it is done."""
    pair = tl.program_id(0).to(tl.int64)
    state = state_ptr + pair * STATE
    if tl.load(state + DONE) == 0.0:
        blocks = tl.arange(0, BLOCKS_PAD)
        known = blocks < BLOCKS
        of = sums_ptr + (pair * BLOCKS + blocks) * SUMS
        s0 = tl.sum(tl.load(of, mask=known, other=0.0), axis=0)
        s1 = tl.sum(tl.load(of + 1, mask=known, other=0.0), axis=0)
        delta = tl.load(delta_ptr + pair)
        tl.store(state + PASSES, tl.load(state + PASSES) + 1.0)
        if PASS == TOTALS:
            _after_totals(state, s0, s1, delta)
        else:
            s2 = tl.sum(tl.load(of + 2, mask=known, other=0.0), axis=0)
            s3 = tl.sum(tl.load(of + 3, mask=known, other=0.0), axis=0)
            s4 = tl.sum(tl.load(of + 4, mask=known, other=0.0), axis=0)
            if PASS == ONE:
                s5 = tl.sum(tl.load(of + 5, mask=known, other=0.0), axis=0)
                top = tl.max(tl.load(of + 6, mask=known, other=0.0), axis=0)
                _after_one(state, s0, s1, s2, s3, s4, s5, top, rounding, delta)
            else:
                _after_pair(state, s0, s1, s2, s3, s4, rounding, delta)


@triton.jit
def _after_totals(state, p_total, q_total, delta):
    """Lossless until something better is found; not a number where a row has no mass."""
    sane = (p_total > 0.0) & (p_total < _INF) & (q_total > 0.0) & (q_total < _INF)
    best = tl.where(sane, 1.0, float("nan")).to(tl.float64)
    tl.store(state + P_TOTAL, p_total)
    tl.store(state + Q_TOTAL, q_total)
    tl.store(state + BEST_A, best)
    tl.store(state + BEST_B, best)
    tl.store(state + A, 1.0)
    tl.store(state + B, 1.0)
    tl.store(state + DONE, tl.where(sane & (delta > 0.0), 0.0, 1.0).to(tl.float64))


@triton.jit
def _after_one(state, above, p_above, below, excluded, rising, falling, top, rounding, delta):
    """Where the search starts; or its end, where the budget allows the draft as it is."""
    surplus = p_above - above
    whole = rising + falling
    free = whole + rounding * (whole + 2.0 * surplus) <= delta
    done = free & (excluded == 0.0) & (top < _FAR)
    top = tl.where(top > 1.0, top, 1.0)
    top = tl.where(top < _FAR, top, _FAR)
    room = tl.where(top > 1.0, top - 1.0, _EPS)
    low = _EPS / room
    # Near a = 1 the divergence is s^2 Q (1 + Q/(1-Q)) / 2, Q above 1.
    s = tl.sqrt(2.0 * delta * (1.0 - above) / above)
    odds = tl.where((s > _EPS) & (s < room), s / (room - s), tl.sqrt(low) * 2.0**26)
    odds = tl.where(free, _WHOLE, odds)
    a = 1.0 + room / (1.0 + 1.0 / odds)
    aim = surplus - (a - 1.0) * above
    aim = tl.where(free | (aim < excluded), excluded, aim)
    b = tl.where(below > 0.0, 1.0 - (surplus - aim) / below, 1.0)
    tl.store(state + BEST_A, _raised(top), mask=done)
    tl.store(state + A, a)
    tl.store(state + B, tl.where(b > 0.0, b, 0.0))
    tl.store(state + DONE, tl.where(done, 1.0, 0.0).to(tl.float64))
    tl.store(state + SURPLUS, surplus)
    tl.store(state + EXCLUDED, excluded)
    tl.store(state + TOP, top)
    tl.store(state + LOW, low)
    tl.store(state + LOW_A, 1.0)
    tl.store(state + LOW_RIGHT, surplus)
    tl.store(state + LOW_MASS, above)
    tl.store(state + HIGH, 2.0 * _WHOLE)
    tl.store(state + ODDS, odds)
    tl.store(state + UPPER_B, 1.0)
    tl.store(state + UPPER, surplus)
    tl.store(state + UPPER_MASS, below)


@triton.jit
def _raised(a):
    """An end that keeps the draft as it is, whatever the rounding of a * q."""
    return tl.where(a > 1.0, a * (1.0 + 16.0 * _EPS), a)


@triton.jit
def _after_pair(state, q_high, p_high, q_low, p_low, between, rounding, delta):
    """What a pair costs, by the masses at p/q > a and p/q <= b and what lies between; the next."""
    a = tl.load(state + A)
    b = tl.load(state + B)
    odds = tl.load(state + ODDS)
    whole = odds >= _WHOLE
    right = p_high - a * q_high
    right = tl.where(right > 4.0 * _EPS * p_high, right, 0.0)
    left = b * q_low - p_low
    left = tl.where(left > 0.0, left, 0.0)
    excess = left - right

    f_a, log_a = _cost(a - 1.0)
    f_b, log_b = _cost(tl.where(b > _EPS, b, _EPS) - 1.0)
    f_b = tl.where(b > _EPS, f_b, 1.0)
    log_b = tl.where(b > _EPS, log_b, tl.log(tl.where(b > _TINY, b, _TINY)))
    spent = tl.where(q_high > 0.0, q_high * f_a, 0.0) + q_low * f_b + between
    # What rounding of the sums, of their terms and of a and b may have hidden is spent.
    moved = 2.0 * tl.load(state + SURPLUS) - (p_high - q_high) - (q_low - p_low)
    hidden = moved + tl.where(q_high > 0.0, a * q_high * log_a, 0.0) - (b * q_low + p_high) * log_b
    spent += rounding * (spent + hidden)
    lost = rounding * (b * q_low + p_low)
    spent += tl.where(left > 0.0, lost * (lost / left), 0.0)
    # Where little of the surplus is drawn, tokens stay below b q, at this part of it or more.
    drawn = tl.where(left > 0.0, b * right / left, 1.0)
    drawn = tl.log(tl.where(drawn > _TINY, drawn, _TINY))
    most = spent - tl.where(excess > 0.0, excess * drawn, 0.0)
    least = spent - excess * log_b
    # Where more is rejected than the surplus, h may exceed q, by the difference in all.
    emitted = most - tl.where(drawn > 0.0, excess * drawn, 0.0)
    keeps = (emitted <= delta) & ((left > 0.0) | (right == 0.0))
    within = most <= delta
    beyond = least > delta

    low = tl.load(state + LOW)
    rises = within & (odds > low)
    low = tl.where(rises, odds, low)
    low_a = tl.where(rises, a, tl.load(state + LOW_A))
    low_right = tl.where(rises, right, tl.load(state + LOW_RIGHT))
    low_mass = tl.where(rises, q_high, tl.load(state + LOW_MASS))
    high = tl.load(state + HIGH)
    high = tl.where(beyond & (odds < high), odds, high)
    # Aim below the budget by what the spacing of floats at a = 1 + s may move the divergence.
    slack = 2.0**-36 + 8.0 * _EPS / (a - 1.0)
    slack = tl.where(slack < 0.125, slack, 0.125)
    close = whole | (least >= delta * (1.0 - 4.0 * slack)) | (high <= low * (1.0 + 4.0 * _EPS))
    better = keeps & (whole | (a > tl.load(state + BEST_A)))
    tl.store(state + BEST_A, tl.where(whole, _raised(a), a), mask=better)
    tl.store(state + BEST_B, b, mask=better)
    tl.store(state + DONE, tl.where(keeps & close, 1.0, 0.0).to(tl.float64))

    # In the log-odds of a, where log D is nearly straight.
    goal = delta * (1.0 - slack)
    gap = tl.log(goal) - tl.log(tl.where(least > 0.0, least, 1.0))
    slope = (a - 1.0) * q_high * (log_a - log_b)
    gap = tl.where(least > 0.0, gap * least * (1.0 + odds) / slope, 0.0)
    newton = odds * tl.exp(tl.where(gap < 700.0, gap, 700.0))
    # Beyond a kink that may go far below the root, unlike the tangent in R: back by those of R.
    excluded = tl.load(state + EXCLUDED)
    room = tl.load(state + TOP) - 1.0
    mass = right + (least - goal) / (log_a - log_b)
    mass = tl.where(mass > excluded, mass, excluded)
    here = a - 1.0 + (right - mass) / q_high
    s = low_a - 1.0 + (low_right - mass) / low_mass
    s = tl.where(here > s, here, s)
    tangent = tl.where(s < room, s / (room - s), _WHOLE)
    middle = tl.sqrt(low) * tl.sqrt(tangent)
    middle = tl.where(middle > tangent / 4.0, middle, tangent / 4.0)
    newton = tl.where(beyond & (newton < middle), tangent, newton)
    newton = tl.where(newton < _WHOLE, newton, _WHOLE)
    newton = tl.where((newton > low) & (newton < high), newton, tl.sqrt(low) * tl.sqrt(high))
    # As long as the bounds leave it in doubt what a costs, only b moves.
    doubt = tl.abs(excess) > tl.where(within, 1.0, 0.03125) * right
    moves = beyond | ~(doubt | whole)
    odds = tl.where(moves, newton, odds)
    next_a = tl.where(moves, 1.0 + room / (1.0 + 1.0 / odds), a)
    aim = right - tl.where(moves, q_high * (next_a - a), 0.0)
    other = low_right - low_mass * (next_a - low_a)
    aim = tl.where(moves & (other > aim), other, aim)
    aim = tl.where(aim > excluded, aim, excluded)
    tl.store(state + A, next_a)
    tl.store(state + ODDS, odds)
    tl.store(state + LOW, low)
    tl.store(state + LOW_A, low_a)
    tl.store(state + LOW_RIGHT, low_right)
    tl.store(state + LOW_MASS, low_mass)
    tl.store(state + HIGH, high)
    tl.store(state + B, _next_b(state, b, left, q_low, aim))


@triton.jit
def _next_b(state, b, left, q_low, aim):
    """Towards the b with L(b) = aim, from L(b) = left and its slope, q_low.

    Keeps a point on either side of the root: all tangents bound it from above, the chord below.
    """
    upper_b = tl.load(state + UPPER_B)
    upper = tl.load(state + UPPER)
    upper_mass = tl.load(state + UPPER_MASS)
    lower_b = tl.load(state + LOWER_B)
    lower = tl.load(state + LOWER)
    lower_b = tl.where(lower <= aim, lower_b, 0.0)
    lower = tl.where(lower <= aim, lower, 0.0)
    above = (left >= aim) & ((upper < aim) | (b <= upper_b))
    below = (left < aim) & (b > lower_b)
    upper_b = tl.where(above, b, upper_b)
    upper = tl.where(above, left, upper)
    upper_mass = tl.where(above, q_low, upper_mass)
    lower_b = tl.where(below, b, lower_b)
    lower = tl.where(below, left, lower)
    tl.store(state + UPPER_B, upper_b)
    tl.store(state + UPPER, upper)
    tl.store(state + UPPER_MASS, upper_mass)
    tl.store(state + LOWER_B, lower_b)
    tl.store(state + LOWER, lower)

    most = tl.where(upper_mass > 0.0, upper_b + (aim - upper) / upper_mass, 1.0)
    here = tl.where(q_low > 0.0, b + (aim - left) / q_low, 1.0)
    most = tl.where(here < most, here, most)
    most = tl.where(most < 1.0, most, 1.0)
    most = tl.where(most > 0.0, most, 0.0)
    # Far above the root a tangent is slow.
    chord = lower_b + (aim - lower) * (upper_b - lower_b) / (upper - lower)
    least = tl.where((upper > aim) & (chord > lower_b), chord, lower_b)
    least = tl.where(least > most / 256.0, least, most / 256.0)
    least = tl.where(least < most, least, most)
    far = (left > 4.0 * aim) & (aim > 0.0)
    found = tl.where(far, tl.sqrt(least) * tl.sqrt(most), most)
    # Rounding of the bound may keep b just below the root.
    more = b * (1.0 + 2.0**-20)
    return tl.where((left < aim / 2.0) & (found < more), more, found)
