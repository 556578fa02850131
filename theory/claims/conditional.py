"""Group 1: the best law for one drafted token (Theorems 1 and 2 of the Cactus paper)."""

from __future__ import annotations

import mpmath as mp
import numpy as np

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally

DERIVATION = "derivations/01-conditional-optimum.md"
FIGURE = "boosts.png"


def fixed_law(rng: np.random.Generator, deadline: float) -> Result:
    """Theorem 1, through the rules whose target law does not depend on n."""
    tally = Tally()
    for _ in tally.rounds(deadline, 40):
        p, q = instances.pair(rng)
        delta, width = instances.budget(rng), float(rng.uniform(0.01, 3))
        cases = {
            "Lossless": (cr.Lossless(), q),
            "Mentored": (cr.Mentored(delta), oracles.mentored_law(p, q, delta)),
            "Band": (cr.Band(width), oracles.band_law(p, q, width)),
        }
        for name, (rule, h) in cases.items():
            out = cr.output_law(p, q, rule)
            rate = cr.audit(p, q, rule).acceptance_rate
            tally.equal(out, h, 1e-9, f"{name}: output law = h")
            tally.equal(rate, np.minimum(p, h).sum(), 1e-9, f"{name}: acceptance = sum min(p, h)")
    return tally.result()


def surrogate_optimum(rng: np.random.Generator, deadline: float) -> Result:
    """Theorem 2 against a general convex solver over the whole simplex."""
    tally = Tally()
    for index in tally.rounds(deadline, 18):
        name = oracles.STRICT[index % len(oracles.STRICT)]
        q = instances.row(rng, int(rng.integers(2, 6)))
        n = int(rng.integers(len(q)))
        if q[n] < 1e-5 or q.min() < 1e-6:
            continue
        delta = instances.budget(rng, -2, 0)
        one_hot = np.eye(len(q))[n]  # sum min(e_n, h) = h_n: the problem for the drafted n
        best = oracles.convex_optimum(one_hot, q, delta, name)
        cap = float(cr.boost(q[n], delta, name))
        tally.equal(cap, best, 2e-5, f"{name}: boost = largest h_n")
    return tally.result()


def surrogate_spends(rng: np.random.Generator, deadline: float) -> Result:
    """The surrogate's divergence over the full row is the budget, or less where the cap is 1."""
    tally = Tally()
    for index in tally.rounds(deadline, 60):
        name = (*oracles.NAMES, "max")[index % 8]
        q = instances.row(rng, int(rng.integers(2, 9)), int(rng.random() < 0.3))
        n = int(rng.choice(np.flatnonzero(q)))
        delta = instances.budget(rng)
        cap = float(cr.boost(q[n], delta, name))
        with mp.workdps(50):
            whole = [mp.mpf(float(x)) for x in q]
            rest = mp.fsum(whole) - whole[n]
            spent = mp.mpf(0)
            if rest > 0 and name != "max":
                spent = oracles.two_point(name, mp.mpf(cap), whole[n] / mp.fsum(whole))
            elif name == "max":
                spent = mp.log(mp.mpf(cap) / whole[n])
        tally.at_most(float(spent), delta, 16 * EPS * (delta + 1), f"{name}: D(surrogate, q)")
    return tally.result()


CLAIMS = (
    Claim(
        "1a",
        "output law",
        "Target law h not depending on n: output law = h, acceptance = sum min(p, h).",
        DERIVATION,
        FIGURE,
        fixed_law,
    ),
    Claim(
        "1b",
        "surrogate",
        "boost(q_n, delta) is the largest h_n over laws h in q's support with D_f(h, q) <= delta.",
        DERIVATION,
        FIGURE,
        surrogate_optimum,
    ),
    Claim(
        "1c",
        "surrogate",
        "D_f(surrogate, q) <= delta over the whole row, for every divergence of the core.",
        DERIVATION,
        FIGURE,
        surrogate_spends,
    ),
)
