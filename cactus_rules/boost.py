r"""The scalar problem behind Cactus: how far may one token be raised within a budget?

    maximise g  subject to  D(Bernoulli(g) || Bernoulli(q_n)) <= delta,   q_n <= g <= 1

which is Theorem 2 of the Cactus paper [1]: raising the drafted token from q_n to g and scaling all
others by (1-g)/(1-q_n) is the cheapest way to accept it more often, and costs the two-point form.

[1] arXiv 2604.04987, Theorem 2 (exact), Corollary 5 (Taylor).
"""

from __future__ import annotations

import math
import reprlib
from typing import Literal, TypeAlias, get_args

from cactus_rules import _validate, divergences
from cactus_rules._arrays import (
    Array,
    Namespace,
    asarray,
    float64,
    is_numpy,
    namespace,
    numpy_namespace,
    quiet,
    scalars,
)
from cactus_rules.divergences import Divergence

Solver: TypeAlias = Literal["exact", "taylor", "closed"]

_SOLVERS = get_args(Solver)

_EPS = 2.0**-52
_NEWTON_STEPS = 6
_BISECTIONS = 11
_SMALLEST = 1e-300
_SMALLEST_BUDGET = 1e-13


def boost(
    q_n: Array, delta: Array, divergence: str | Divergence = "kl", solver: Solver = "exact"
) -> Array:
    """The raised probability `cap` of a token with target probability `q_n`, elementwise.

    Solvers, with what each promises about the two-point divergence of the returned float64 `cap`:

    * ``"exact"``: the largest cap within `delta`, in closed form or by a fixed number of
      safeguarded Newton steps, rounded toward q_n. ``D(cap || q_n) <= delta``, for every
      divergence.
    * ``"taylor"``: ``min(1, q_n + sqrt(2 delta q_n (1-q_n)))``, the published rule [1, Cor. 5].
      KL only. It does **not** keep the budget: ``KL <= log(1 + 2 delta)``, and ``KL <= delta`` is
      sure only where cap + q_n <= 1 ([1, Cor. 6] has cap <= 1/2).
    * ``"closed"``: ``min(1, q_n + sqrt((e^delta - 1) q_n (1-q_n)))``. KL only. ``KL <= delta``
      everywhere, since KL <= log(1 + chi2); a little smaller than the exact cap.

    Args:
        q_n: target probabilities, any shape and float dtype, or nested lists; values above 1 by
            rounding count as 1.
        delta: budget in nats (or in the unit of `divergence`), >= 0, broadcast against `q_n`.
        divergence: a name from `cactus_rules.divergences.BY_NAME` or a record.
        solver: see above.

    Returns:
        cap, float64, broadcast shape, with q_n <= cap <= 1, and 0 where q_n = 0 (a token that the
        target excludes is never raised). Below q_n = 1e-300, and for a delta below 1e-13,
        the exact solver leaves q_n as it is.

    Raises:
        ValueError: an unknown divergence or solver, or one that is not made for the other; what
            is no number; numpy values that are negative or NaN.
    """
    record = divergences.get(divergence)
    check_solver(record, solver)
    try:
        xp = namespace(q_n, delta)
        q = float64(xp, asarray(xp, q_n, delta))
        budget = float64(xp, asarray(xp, delta, q))
    except (TypeError, ValueError):
        if isinstance(q_n, (list, tuple)) or isinstance(delta, (list, tuple)):
            return boost(_listed("q_n", q_n), _listed("delta", delta), record, solver)
        raise ValueError(
            "q_n and delta must be numbers, or arrays of one library, got "
            f"{reprlib.repr(q_n)} and {reprlib.repr(delta)}"
        ) from None
    q = xp.minimum(q, 1 + 0 * q)
    if q.ndim and budget.ndim and q.shape != budget.shape:
        shapes = tuple(q.shape), tuple(budget.shape)
        _validate.common_shape(
            *shapes, "q_n {} and delta {} do not broadcast: give one delta per q_n".format(*shapes)
        )
    if is_numpy(xp):
        fine = (q >= 0) & (budget >= 0)
        if not (fine if fine.ndim == 0 else fine.all()):
            raise ValueError(
                f"q_n must be probabilities and delta budgets >= 0, got {q_n!r} and {delta!r}"
            )
        if fine.ndim == 0:
            xp, q, budget = scalars, q[()], budget[()]
    with quiet(namespace(q)):
        if solver == "taylor":
            x = _rounded_down(xp.sqrt(2 * budget) * xp.sqrt(q * (1 - q)), q)
        elif solver == "closed":
            x = _rounded_down(
                xp.sqrt(xp.expm1(xp.minimum(budget, 700 + 0 * q))) * xp.sqrt(q * (1 - q)), q
            )
        else:
            x = _exact(record, q, budget, xp)
        cap = xp.minimum(q + x, 1 + 0 * q)
        return xp.where(budget == math.inf, xp.where(q > 0, 1 + 0 * q, 0 * q), cap)


def _listed(name: str, value: Array) -> Array:
    """Nested lists as a numpy array; other values as they are."""
    if not isinstance(value, (list, tuple)):
        return value
    return _validate.as_array(numpy_namespace, value, None, name)


def check_solver(divergence: Divergence, solver: str) -> None:
    """ValueError unless `solver` exists and is made for `divergence`."""
    if solver not in _SOLVERS:
        raise ValueError(f"solver must be 'exact', 'taylor' or 'closed', got {solver!r}")
    if solver != "exact" and not isinstance(divergence, divergences.KL):
        raise ValueError(
            f"solver={solver!r} is a formula for divergence='kl', got {divergence.name!r}: "
            "use solver='exact'"
        )


def _rounded_down(x: Array, q: Array) -> Array:
    """`x`, known to a few ulps, moved toward 0 by what rounding x and q + x can have added."""
    x = x - 4 * _EPS * (q + x)
    return (x + abs(x)) / 2


def _exact(record: Divergence, q: Array, delta: Array, xp: Namespace) -> Array:
    closed = record.closed_boost(q, delta, xp)
    x = _root(record, q, delta, xp) if closed is None else _rounded_down(closed, q)
    return xp.where((q >= _SMALLEST) & (delta >= _SMALLEST_BUDGET), x, 0 * q)


def _root(record: Divergence, q: Array, delta: Array, xp: Namespace) -> Array:
    """The root x of D(q + x || q) = delta on [0, 1 - q], less a bound on its error.

    D is convex and increasing in x, so Newton's iterates lie above the root after the first step
    and fall toward it; each step may shrink the distance to x = 1 - q at most 4096-fold. For KL the
    Taylor value is a start from which six steps reach the last digit over the whole range; the
    other divergences first halve a bracket in the logarithm of x / (1 - q - x).
    """
    inside = (q >= _SMALLEST) & (q < 1)
    q = xp.where(inside, q, 0.5 + 0 * q)
    room = 1 - q
    highest = room * (1 - _EPS)
    if isinstance(record, divergences.KL):
        x = xp.minimum(xp.sqrt(2 * delta) * xp.sqrt(q * room), room * (1 - 2.0**-10))
    else:
        x = xp.minimum(_bisected(record, q, room, delta, xp), highest)
    for _ in range(_NEWTON_STEPS):
        value, slope = _two_point(record, x, q, room, xp)
        x = xp.minimum(x - (value - delta) / slope, xp.minimum(room - (room - x) / 4096, highest))
        x = (x + abs(x)) / 2
    x = _rounded_down(x - _error(record, x, q, room, delta, xp), q)
    cost_of_one = q * record.generator(room / q, xp)[0] + room * record.at_zero
    x = xp.where(cost_of_one * (1 + 16 * _EPS) <= delta, room, x)
    return xp.where(inside, x, 0 * q)


def _two_point(
    record: Divergence, x: Array, q: Array, room: Array, xp: Namespace
) -> tuple[Array, Array]:
    """D(q + x || q) and its derivative in x."""
    f_up, slope_up = record.generator(x / q, xp)
    f_down, slope_down = record.generator(-x / room, xp)
    return q * f_up + room * f_down, slope_up - slope_down


def _error(
    record: Divergence, x: Array, q: Array, room: Array, delta: Array, xp: Namespace
) -> Array:
    """A bound on the error of the root: a few ulps of each term of D's sum, over D's slope."""
    up, down = x / q, -x / room
    slope_up, slope_down = record.generator(up, xp)[1], record.generator(down, xp)[1]
    terms = delta + 2 * x + (q + x) * abs(slope_up) + (room - x) * abs(slope_down)
    if isinstance(record, divergences.Alpha):
        # In a power, an ulp of the logarithm counts as often as order times logarithm says; the
        # linear terms that cancel carry the factor 1/(order - 1).
        powers = 1 + abs(record.order) * (1 + xp.log1p(up) - xp.log1p(down))
        terms = (terms + 4 * x / abs(record.order - 1)) * powers
    return 4 * _EPS * terms / (slope_up - slope_down)


def _bisected(record: Divergence, q: Array, room: Array, delta: Array, xp: Namespace) -> Array:
    """A point above the root, near it both in x and in 1 - q - x: within a factor of 1.5 for most

    divergences, and of its root of that order for a power, on which Newton's steps depend."""
    low = 0 * (q + delta) - 700.0
    high = 0 * low + 37.0
    order = abs(record.order) if isinstance(record, divergences.Alpha) else 0.0
    for _ in range(_BISECTIONS + math.ceil(math.log2(1 + order))):
        middle = (low + high) / 2
        value, _ = _two_point(record, room / (1 + xp.exp(-middle)), q, room, xp)
        below = value <= delta
        low, high = xp.where(below, middle, low), xp.where(below, high, middle)
    return room / (1 + xp.exp(-high))
