"""Groups 3 and 4: the published Taylor form and the closed form that keeps the budget."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally

FIGURE = "spent.png"
CROSSOVER = float(brentq(lambda d: math.log1p(2 * d) - d, 0.5, 3.0, xtol=1e-15))
"""delta* = 1.25643...: from here on Taylor never exceeds its budget, and `closed` is the bolder."""


def _spent(cap: float, q: float) -> float:
    """KL between the coins, at 40 digits."""
    with mp.workdps(40):
        return float(oracles.two_point("kl", mp.mpf(cap), mp.mpf(q)))


def _taylor(q: float, delta: float) -> float:
    return float(cr.boost(q, delta, "kl", "taylor"))


def chi_square(rng: np.random.Generator, deadline: float) -> Result:
    """Taylor spends a chi-square of 2 delta, and is the core's exact chi-square rule at 2 delta."""
    tally = Tally()
    for _ in tally.rounds(deadline, 200):
        q, delta = float(rng.uniform(1e-6, 1)), instances.budget(rng, -4, 0.5)
        cap = _taylor(q, delta)
        tally.equal(cap, cr.boost(q, 2 * delta, "chi2"), 32 * EPS, "boost(q, 2 delta, 'chi2')")
        with mp.workdps(40):
            spent = float(oracles.two_point("chi2", mp.mpf(cap), mp.mpf(q)))
        spent = spent if cap < 1 else 2 * delta
        tally.equal(spent / (2 * delta), 1.0, 1e-6 if cap > q * (1 + 1e-8) else 1, "chi2 = 2 delta")
    return tally.result()


def logarithm(rng: np.random.Generator, deadline: float) -> Result:
    """KL <= log(1 + 2 delta), reached at q_n = 1/(1 + 2 delta)."""
    tally = Tally()
    for _ in tally.rounds(deadline, 200):
        q, delta = float(rng.uniform(1e-6, 1)), instances.budget(rng, -4, 1)
        tally.at_most(_spent(_taylor(q, delta), q), math.log1p(2 * delta), 8 * EPS, "KL spent")
        peak = 1 / (1 + 2 * delta)
        top = _spent(_taylor(peak, delta), peak)
        tally.equal(top / math.log1p(2 * delta), 1.0, 1e-6, "attained at 1/(1 + 2 delta)")
    return tally.result()


def overspending(rng: np.random.Generator, deadline: float) -> Result:
    """The set of q_n where KL > delta is one interval (q_lo, e^-delta), empty from delta* on."""
    tally = Tally()
    for _ in tally.rounds(deadline, 12):
        delta = float(rng.uniform(1e-3, 1.2))
        peak = 1 / (1 + 2 * delta)
        grid = np.linspace(1e-4, peak, 60)
        spent = np.array([_spent(_taylor(x, delta), x) for x in grid])
        tally.true(bool((np.diff(spent) > -1e-13).all()), "KL rises on (0, 1/(1 + 2 delta)]")
        lower = brentq(lambda x, d=delta: _spent(_taylor(x, d), x) - d, 1e-9, peak)
        for x in rng.uniform(lower + 1e-9, math.exp(-delta) - 1e-9, 5):
            tally.true(_spent(_taylor(x, delta), x) > delta, "overspends inside the interval")
        for x in (*rng.uniform(0, lower - 1e-9, 3), *rng.uniform(math.exp(-delta), 1, 3)):
            tally.at_most(_spent(_taylor(x, delta), x), delta, 8 * EPS, "keeps delta outside it")
        large = CROSSOVER * (1 + float(rng.exponential()))
        x = float(rng.uniform(0, 1))
        tally.at_most(_spent(_taylor(x, large), x), large, 8 * EPS, "never from delta* on")
    return tally.result()


def sufficient(rng: np.random.Generator, deadline: float) -> Result:
    """Weaker than Corollary 6: cap + q_n <= 1 is enough."""
    tally = Tally()
    for _ in tally.rounds(deadline, 150):
        delta = instances.budget(rng, -4, 1)
        q = float(rng.uniform(0, (1 - math.sqrt(delta / (2 + delta))) / 2))
        cap = _taylor(q, delta)
        tally.at_most(cap + q, 1.0, 8 * EPS, "the condition, solved for q_n")
        tally.at_most(_spent(cap, q), delta, 8 * EPS, "KL where cap + q_n <= 1")
    return tally.result()


def closed(rng: np.random.Generator, deadline: float) -> Result:
    """The closed form keeps delta everywhere, spends all of it at e^-delta, and is never bolder."""
    tally = Tally()
    for _ in tally.rounds(deadline, 150):
        q, delta = float(10 ** rng.uniform(-9, 0)), instances.budget(rng, -5, 1)
        cap = float(cr.boost(q, delta, "kl", "closed"))
        tally.at_most(_spent(cap, q), delta, 0.0, "KL spent")
        tally.at_most(cap, cr.boost(q, delta), 16 * EPS, "not above the exact cap")
        edge = math.exp(-delta)
        top = _spent(float(cr.boost(edge, delta, "kl", "closed")), edge)
        tally.equal(top / delta, 1.0, 1e-4, "all of it at q_n = e^-delta")
        low, high = sorted((cap, _taylor(q, delta)))
        tally.true((cap == low) == (delta <= CROSSOVER) or high - low < 1e-12, "Taylor or closed")
    return tally.result()


_THREE, _FOUR = "derivations/03-taylor.md", "derivations/04-closed.md"
CLAIMS = (
    Claim("3a", "surrogate", "Taylor at delta is the exact chi-square rule at 2 delta.",
          _THREE, FIGURE, chi_square),
    Claim("3b", "surrogate",
          "Taylor: KL(surrogate, q) <= log(1 + 2 delta), attained at q_n = 1/(1 + 2 delta).",
          _THREE, FIGURE, logarithm),
    Claim("3c", "surrogate",
          "Taylor exceeds delta exactly for q_n in one interval (q_lo, e^-delta); never for "
          f"delta >= {CROSSOVER:.6f}, the root of log(1 + 2 delta) = delta.",
          _THREE, FIGURE, overspending),
    Claim("3d", "surrogate",
          "Taylor: KL(surrogate, q) <= delta wherever cap + q_n <= 1 (the paper: cap <= 1/2).",
          _THREE, FIGURE, sufficient),
    Claim("4", "surrogate",
          "Closed form: KL(surrogate, q) <= delta for every q_n, with equality at e^-delta; its "
          "cap is at most the exact one.",
          _FOUR, FIGURE, closed),
)  # fmt: skip
