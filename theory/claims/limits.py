"""Group 11: temperature 0, one-hot rows, no budget, all the budget."""

from __future__ import annotations

import math

import numpy as np

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally
from cactus_rules.theory.claims.output_law import regular_rules

DERIVATION = "derivations/11-limits.md"
FIGURE = "limits.png"


def greedy_target(rng: np.random.Generator, deadline: float) -> Result:
    """A one-hot target: every rule is an exact match, with acceptance p_j."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        size = int(rng.integers(2, 12))
        j = int(rng.integers(size))
        q, p = np.eye(size)[j], instances.row(rng, size, int(rng.integers(0, size - 1)))
        rules = regular_rules(rng)
        rules |= {"Typical": cr.Typical(), "TopK": cr.TopK(3), "SampleMatch": cr.SampleMatch()}
        for name, rule in rules.items():
            tally.equal(cr.output_law(p, q, rule), q, 8 * EPS, f"{name}: emits j")
            rate = float(cr.audit(p, q, rule).acceptance_rate)
            tally.equal(rate, p[j], 4 * EPS, f"{name}: accepts p_j")
    return tally.result()


def no_budget(rng: np.random.Generator, deadline: float) -> Result:
    """Budget 0 is the target itself, for every divergence and solver."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng)
        rules: list[cr.Rule] = [cr.Cactus(0.0, name) for name in (*oracles.NAMES, "max")]
        rules += [cr.Mentored(0.0, name) for name in (*oracles.NAMES, "max")]
        rules += [cr.Cactus(0.0, solver="taylor"), cr.Cactus(0.0, solver="closed"), cr.Band(0.0)]
        rules += [cr.Lenience(1.0), cr.Ensemble(1.0), cr.ReducibleFuzzy(0.0)]
        for rule in rules:
            tally.equal(cr.output_law(p, q, rule), q, 64 * EPS, repr(rule))
    return tally.result()


def all_budget(rng: np.random.Generator, deadline: float) -> Result:
    """An infinite budget accepts all that q allows; the two laws, where p leaves q's support."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng)
        outside, far = float(p[q == 0].sum()), 0.5 * float(np.abs(p - q).sum())
        spread = np.maximum(q - p, 0) * (outside / far if far > 0 else 0.0)
        law = np.where(q > 0, p, 0) + spread
        tally.equal(cr.output_law(p, q, cr.Cactus(math.inf)), law, 64 * EPS, "Cactus")
        inside = q > 0
        top = max(1.0, float((p[inside] / q[inside]).max()))
        law, _ = oracles.clip_law(p, q, top)
        tally.equal(cr.output_law(p, q, cr.Mentored(math.inf)), law, 1e-12, "Mentored")
        for rule in (cr.Cactus(math.inf), cr.Mentored(math.inf), cr.Band(math.inf)):
            rate = float(cr.audit(p, q, rule).acceptance_rate)
            tally.equal(rate, p[inside].sum(), 64 * EPS, f"{rule!r}: accepts p(supp q)")
    return tally.result()


def rising(rng: np.random.Generator, deadline: float) -> Result:
    """Acceptance and divergence do not fall as the budget grows."""
    tally = Tally()
    for _ in tally.rounds(deadline, 20):
        p, q = instances.pair(rng)
        budgets = np.sort(10 ** rng.uniform(-4, 1, 6))
        for make in (
            cr.Cactus,
            lambda d: cr.Cactus(d, solver="taylor"),
            cr.Mentored,
            lambda d: cr.Mentored(d, "hellinger"),
        ):
            seen = [cr.audit(p, q, make(float(d))) for d in budgets]
            rates = np.array([float(a.acceptance_rate) for a in seen])
            spent = np.array([float(a.kl) for a in seen])
            tally.at_most(-np.diff(rates).min(), 0.0, 64 * EPS, "acceptance does not fall")
            tally.at_most(-np.diff(spent).min(), 0.0, 1e-12, "KL does not fall")
    return tally.result()


CLAIMS = (
    Claim("11a", "output law", "One-hot target at j: every rule emits j and accepts p_j.",
          DERIVATION, FIGURE, greedy_target),
    Claim("11b", "output law", "Budget 0 gives q, for every rule, divergence and solver.",
          DERIVATION, FIGURE, no_budget),
    Claim("11c", "output law",
          "Infinite budget: acceptance p(supp q); out = p where q covers p, else "
          "min(p, cap) + p(q=0) (q-p)+/TV (Cactus), max(p, bq) (Mentored).",
          DERIVATION, FIGURE, all_budget),
    Claim("11d", "output law",
          "Acceptance and KL(out, q) of Cactus and Mentored do not fall as the budget grows.",
          DERIVATION, FIGURE, rising),
)  # fmt: skip
