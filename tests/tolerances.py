"""Every tolerance of the tests, from eps(dtype), with its reason."""

from __future__ import annotations

EPS = 2.0**-52
"""eps of float64, in which the core computes whatever the rows' dtype is."""

EPS_OF = {"float16": 2.0**-10, "float32": 2.0**-23, "float64": EPS}


def law(width: int) -> float:
    """Absolute error of one entry of an output law that is a formula of a few operations.

    Each of `width` rejected tokens adds a term of a few roundings to the entry, and the entries'
    sums are off 1 by some more; no term exceeds the mass that it moves, which is at most 1.
    """
    return 16 * (width + 4) * EPS


def searched_law(width: int) -> float:
    """As `law`, where one number was searched: the clip rule stops within 2^-34 of its budget.

    The law then moves by less than that share of itself. Budgets below about 1e-10 stop earlier,
    since the spacing of floats at a = 1 + s is all that is left; their laws are within s of q.
    """
    return law(width) + 2.0**-30


BOUNDARY = 2.0**-40
"""How near to the boundary of a draw or of a discontinuous rule two kinds of arrays may differ.

Logarithms and sums of other libraries differ from numpy's by ulps, which conditioning of a residual
of small mass can raise a thousandfold; draws that near to a boundary are left out, and counted."""

BOUNDARY_SHARE = 0.002
"""How many draws may be left out: a thousand times what `BOUNDARY` makes likely, and still few."""


def boost_ulps(order: float | None) -> int:
    """How many ulps of the cap the solver may stay below the root; `order` is the alpha family's.

    It gives away 4 ulps for rounding x and q + x, and its own bound on the error of the divergence,
    4 ulps of each of its terms over its slope. In a power x^a an ulp of log x counts |a log x|
    times, log x being down to log(1e-300) = -690, and terms that cancel carry 1/|a - 1|.
    """
    if order is None:
        return 64
    return 64 + int(64 * (1 + abs(order)) ** 2 * 700 / min(1.0, abs(order - 1)))
