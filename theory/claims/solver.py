"""Group 2: the scalar solve in floating point, against bisection at 50 digits."""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np

import cactus_rules as cr
from cactus_rules.theory import oracles
from cactus_rules.theory.claim import Claim, Result, Tally

DERIVATION = "derivations/02-solver.md"
FIGURE = "boosts.png"
DIGITS = 50
ALPHAS = (-1.0, 0.5, 2.0, 3.0)
ULPS, ALPHA_ULPS = 128.0, 2.0**17
"""Largest distance below the exact root, in units of the last place of the cap: a power x^a of the
alpha family loses |a log x| ulps by itself, and more where q_n is near 1e-300."""


def _point(rng: np.random.Generator) -> tuple[float, float]:
    """q_n from 1e-300 to 1 - 1e-16 and delta from 1e-12 to 50, both ends dense."""
    kind = rng.random()
    if kind < 0.45:
        q = float(10 ** rng.uniform(-300, 0))
    elif kind < 0.7:
        q = float(rng.uniform(0, 1))
    else:
        q = 1 - float(10 ** rng.uniform(-16, 0))
    delta = float(10 ** rng.uniform(-12, math.log10(50)))
    return min(max(q, 1e-300), 1 - 1e-16), delta


def _two_point(name: str | float) -> Callable[[mp.mpf, mp.mpf], mp.mpf]:
    if isinstance(name, float):
        return lambda g, q: oracles.alpha_two_point(name, g, q)
    return lambda g, q: oracles.two_point(name, g, q)


def _divergence(name: str | float) -> str | cr.divergences.Divergence:
    return cr.divergences.Alpha(name) if isinstance(name, float) else name


def feasible(rng: np.random.Generator, deadline: float) -> Result:
    """No budget is exceeded by the returned double, judged exactly."""
    tally = Tally()
    for index in tally.rounds(deadline, 240):
        name = (*oracles.NAMES, *ALPHAS)[index % (7 + len(ALPHAS))]
        q, delta = _point(rng)
        cap = float(cr.boost(q, delta, _divergence(name)))
        with mp.workdps(DIGITS):
            spent = _two_point(name)(mp.mpf(cap), mp.mpf(q))
            over = float((spent - mp.mpf(delta)) / mp.mpf(delta))
        tally.at_most(over, 0.0, 0.0, f"{name}: relative overspend at q_n={q!r}, delta={delta!r}")
        tally.true(q <= cap <= 1, f"{name}: q_n <= cap <= 1 at q_n={q!r}, delta={delta!r}")
    return tally.result()


def accurate(rng: np.random.Generator, deadline: float) -> Result:
    """The returned double is within a few ulps of the root."""
    tally, worst = Tally(), {False: 0.0, True: 0.0}
    for index in tally.rounds(deadline, 110):
        name = (*oracles.NAMES, *ALPHAS)[index % (7 + len(ALPHAS))]
        q, delta = _point(rng)
        cap = float(cr.boost(q, delta, _divergence(name)))
        with mp.workdps(DIGITS):
            root = oracles.exact_cap(_two_point(name), q, delta)
            below = float((root - mp.mpf(cap)) / mp.mpf(math.ulp(cap)))
        power = isinstance(name, float)
        worst[power] = max(worst[power], below)
        bound = ALPHA_ULPS if power else ULPS
        tally.at_most(below, bound, 0.0, f"{name}: ulps below at q_n={q!r}, delta={delta!r}")
    tally.note = f"at most {worst[False]:.1f} ulps below the root, alpha family {worst[True]:.0f}"
    return tally.result()


CLAIMS = (
    Claim(
        "2a",
        "solver",
        "The returned double never exceeds the budget at 50 digits: q_n in [1e-300, 1 - 1e-16], "
        "delta in [1e-12, 50], every f-divergence of the core.",
        DERIVATION,
        FIGURE,
        feasible,
    ),
    Claim(
        "2b",
        "solver",
        f"It is at most {ULPS:.0f} ulps of the cap below the exact root (alpha family: 2^17), on "
        "the same range.",
        DERIVATION,
        FIGURE,
        accurate,
    ),
)
