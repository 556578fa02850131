"""Group 5a-5d: the output law of every rule, token by token, and what regular rules share."""

from __future__ import annotations

import math

import numpy as np

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/05-output-law.md"
FIGURE = "pareto_real.png"
ROUND = 256 * EPS


def cactus_caps(q: Row, delta: float, name: str, solver: str) -> Row:
    """Caps by the oracle, one token at a time."""
    return np.array([oracles.cap(float(x), delta, name, solver) for x in q])


def regular_rules(rng: np.random.Generator) -> dict[str, cr.Rule]:
    """One of every rule that lies between draft and target, with random parameters."""
    delta = instances.budget(rng)
    name = str(rng.choice(oracles.NAMES))
    return {
        "Lossless": cr.Lossless(),
        "Cactus exact": cr.Cactus(delta),
        f"Cactus exact {name}": cr.Cactus(delta, name),
        "Cactus taylor": cr.Cactus(delta, solver="taylor"),
        "Cactus closed": cr.Cactus(delta, solver="closed"),
        "Mentored": cr.Mentored(delta),
        f"Mentored {name}": cr.Mentored(delta, name),
        "Band": cr.Band(float(rng.uniform(0, 3))),
        "Lenience": cr.Lenience(float(1 + rng.exponential())),
        "Ensemble": cr.Ensemble(float(rng.uniform(0, 1))),
        "ReducibleFuzzy": cr.ReducibleFuzzy(delta),
    }


def _expected(p: Row, q: Row, rng: np.random.Generator) -> dict[str, tuple[cr.Rule, Row]]:
    """Rules and their laws by enumeration, from formulas written out here."""
    delta, ones, inside = instances.budget(rng), np.ones(len(q)), q > 0
    factor, weight = float(1 + rng.exponential()), float(rng.uniform(0, 1))
    cases: dict[str, tuple[cr.Rule, Row]] = {
        "Lossless": (cr.Lossless(), q),
        "Lenience": (cr.Lenience(factor), oracles.enumerate_law(p, q, factor * q, ones)),
        "Ensemble": (
            cr.Ensemble(weight),
            oracles.enumerate_law(p, q, np.where(inside, weight * q + (1 - weight) * p, 0), ones),
        ),
        "SampleMatch": (cr.SampleMatch(), q),
    }
    for solver in ("exact", "taylor", "closed"):
        law = oracles.cactus_law(p, q, cactus_caps(q, delta, "kl", solver))
        cases[f"Cactus {solver}"] = (cr.Cactus(delta, solver=solver), law)
    epsilon, alpha = float(rng.uniform(0.01, 0.3)), float(rng.uniform(0.1, 0.9))
    kept = q > min(epsilon, alpha * math.exp(-oracles.entropy(q)))
    cases["Typical"] = (cr.Typical(epsilon, alpha), p * kept + p[~kept].sum() * q)
    k = int(rng.integers(1, len(q) + 1))
    best = np.zeros(len(q), bool)
    best[sorted(range(len(q)), key=lambda i: (-q[i], i))[:k]] = True
    kept = best & inside
    cases["TopK"] = (cr.TopK(k), p * kept + p[~kept].sum() * (q * kept) / q[kept].sum())
    accept = float(rng.uniform(0.2, 1))
    sure = float(rng.uniform(0.2, 1))
    rates = np.where(q >= sure, 1.0, np.minimum(1, q / accept)) * inside
    law = p * rates
    for n in range(len(q)):
        if p[n] * (1 - rates[n]) > 0:
            others = np.where(np.arange(len(q)) == n, 0, q)
            law = law + p[n] * (1 - rates[n]) * others / others.sum()
    cases["Threshold"] = (cr.Threshold(accept, sure), law)
    return cases


def formula(rng: np.random.Generator, deadline: float) -> Result:
    """`output_law` (sorted, cumulative sums) against a loop over drafted tokens."""
    tally = Tally()
    for _ in tally.rounds(deadline, 40):
        p, q = instances.pair(rng)
        for name, (rule, law) in _expected(p, q, rng).items():
            # Bisected and solved caps differ by rounding, times the residual's condition.
            tally.equal(
                cr.output_law(p, q, rule), law, 1e-10, f"{name}: {p.tolist()}, {q.tolist()}"
            )
    return tally.result()


def between(rng: np.random.Generator, deadline: float) -> Result:
    """min(p, q) <= out <= max(p, q), nothing outside q's support, for all regular rules."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng, 2, 30)
        for name, rule in regular_rules(rng).items():
            out = cr.output_law(p, q, rule)
            tally.at_most((out - np.maximum(p, q)).max(), 0.0, ROUND, f"{name}: out <= max(p, q)")
            low = np.minimum(p, q)
            tally.at_most((low - out).max(), 0.0, ROUND, f"{name}: out >= min(p, q)")
            tally.at_most(out[q == 0].max(initial=0.0), 0.0, 0.0, f"{name}: support")
    return tally.result()


def no_farther(rng: np.random.Generator, deadline: float) -> Result:
    """D(out, q) <= D(p, q) for every divergence and every regular rule."""
    tally = Tally()
    for _ in tally.rounds(deadline, 12):
        p, q = instances.pair(rng)
        far = {name: oracles.divergence(name, p, q) for name in (*oracles.NAMES, "max")}
        for rule_name, rule in regular_rules(rng).items():
            out = cr.output_law(p, q, rule)
            out = out / out.sum()
            for name, bound in far.items():
                spent = oracles.divergence(name, out, q)
                tally.at_most(spent, bound, 1e-12 * (1 + bound), f"{rule_name}: {name}")
    return tally.result()


def bought(rng: np.random.Generator, deadline: float) -> Result:
    """TV(out, q) = acceptance - acceptance of the lossless rule."""
    tally = Tally()
    for _ in tally.rounds(deadline, 30):
        p, q = instances.pair(rng, 2, 30)
        lossless = float(np.minimum(p, q).sum())
        for name, rule in regular_rules(rng).items():
            distance = 0.5 * float(np.abs(cr.output_law(p, q, rule) - q).sum())
            gained = float(cr.audit(p, q, rule).acceptance_rate) - lossless
            tally.equal(distance, gained, ROUND, name)
    return tally.result()


CLAIMS = (
    Claim("5a", "output law",
          "output_law, O(V log V), equals the sum over drafted tokens, for every rule.",
          DERIVATION, FIGURE, formula),
    Claim("5b", "output law",
          "Regular rules (Lossless, Cactus, Mentored, Band, Lenience, Ensemble, ReducibleFuzzy): "
          "out_i lies between p_i and q_i, with no mass where q = 0.",
          DERIVATION, FIGURE, between),
    Claim("5c", "output law", "Regular rules: D(out, q) <= D(p, q) for every divergence.",
          DERIVATION, FIGURE, no_farther),
    Claim("5d", "output law",
          "Regular rules: TV(out, q) = acceptance - acceptance of Lossless, exactly.",
          DERIVATION, FIGURE, bought),
)  # fmt: skip
