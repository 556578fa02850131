"""Group 7: Lenience, Ensemble, reducible fuzzy, typical and set acceptance."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally

DERIVATION = "derivations/07-other-rules.md"
FIGURE = "entropy.png"


def lenience(rng: np.random.Generator, deadline: float) -> Result:
    """out <= factor q; no rule with that property accepts more (linear program)."""
    tally = Tally()
    for _ in tally.rounds(deadline, 40):
        p, q = instances.pair(rng)
        factor = float(1 + rng.exponential())
        out = cr.output_law(p, q, cr.Lenience(factor))
        tally.at_most((out - factor * q).max(), 0.0, 64 * EPS, "out <= factor q")
        kl = oracles.divergence("kl", out / out.sum(), q)
        bold = float(out[(p > q) & (q > 0)].sum())
        tally.at_most(kl, bold * math.log(factor), 1e-12, "KL <= out(S) log factor")
        rate = float(cr.audit(p, q, cr.Lenience(factor)).acceptance_rate)
        # h in the box [0, factor q], t <= p, t <= h, maximise sum t.
        size, eye = len(p), np.eye(len(p))
        best = linprog(
            np.repeat([0.0, -1.0], size), np.hstack([-eye, eye]), np.zeros(size),
            np.repeat([1.0, 0.0], size)[None], [1.0],
            bounds=[(0, factor * x) for x in q] + [(0, x) for x in p],
        )  # fmt: skip
        tally.equal(rate, -best.fun, 1e-6, "acceptance = linear program")
    return tally.result()


def ensemble(rng: np.random.Generator, deadline: float) -> Result:
    """The mixture exactly, where q covers p; the general formula elsewhere."""
    tally = Tally()
    for _ in tally.rounds(deadline, 80):
        p, q = instances.pair(rng)
        w = float(rng.uniform(0, 1))
        out = cr.output_law(p, q, cr.Ensemble(w))
        far, outside = 0.5 * float(np.abs(p - q).sum()), float(p[q == 0].sum())
        if outside == 0:
            tally.equal(out, w * q + (1 - w) * p, 64 * EPS, "out = w q + (1 - w) p")
        elif far > 0:
            cap = np.where(q > 0, w * q + (1 - w) * p, 0)
            rejected = w * (far - outside) + outside
            law = np.minimum(p, cap) + rejected / far * np.maximum(q - p, 0)
            tally.equal(out, law, 64 * EPS, "out where p leaves q's support")
        tally.equal(0.5 * np.abs(out - q).sum(), (1 - w) * (far - outside), 64 * EPS, "TV")
    return tally.result()


def fuzzy(rng: np.random.Generator, deadline: float) -> Result:
    """D(out, q) <= threshold, excluded tokens or not, and no more accepted than by Mentored."""
    tally = Tally()
    for index in tally.rounds(deadline, 80):
        name = oracles.NAMES[index % len(oracles.NAMES)]
        p, q = instances.pair(rng)
        threshold = instances.budget(rng)
        rule = cr.ReducibleFuzzy(threshold, name)
        out = cr.output_law(p, q, rule)
        spent = oracles.divergence(name, out / out.sum(), q)
        tally.at_most(spent, threshold, 1e-12, f"{name}: D(out, q) <= threshold")
        rate = float(cr.audit(p, q, rule).acceptance_rate)
        best = float(cr.audit(p, q, cr.Mentored(threshold, name)).acceptance_rate)
        tally.at_most(rate, best, 1e-9, f"{name}: at most Mentored's acceptance")
    return tally.result()


def cross_entropy(rng: np.random.Generator, deadline: float) -> Result:
    """Typical acceptance keeps n iff the cross-entropy problem's optimum is the one-hot law."""
    tally = Tally()
    for _ in tally.rounds(deadline, 40):
        q = instances.row(rng, int(rng.integers(2, 12)))
        epsilon, alpha = float(rng.uniform(0.01, 0.3)), float(rng.uniform(0.1, 0.9))
        limit = max(-math.log(epsilon), oracles.entropy(q) - math.log(alpha))
        n = int(rng.integers(len(q)))
        kept = bool(cr.output_law(np.eye(len(q))[n], q, cr.Typical(epsilon, alpha))[n] > 1 - 1e-12)
        best = linprog(-np.eye(len(q))[n], -np.log(q)[None], [limit], np.ones((1, len(q))), [1.0])
        cost, low = -math.log(q[n]), -math.log(q.max())
        expected = 1.0 if cost <= limit else (limit - low) / (cost - low)
        tally.equal(-best.fun, expected, 1e-6, "largest h_n = the closed form")
        tally.true(kept == (cost < limit) or abs(cost - limit) < 1e-9, "kept iff h_n = 1")
        tally.true(int((best.x > 1e-9).sum()) <= 2, "the optimum has at most two tokens")
    return tally.result()


def collapse(rng: np.random.Generator, deadline: float) -> Result:
    """A greedy draft of the target's mode: entropy 0 under typical acceptance; the bounds."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        q = instances.row(rng, int(rng.integers(2, 30)))
        p = np.eye(len(q))[int(q.argmax())]
        out = cr.output_law(p, q, cr.Typical())
        tally.equal(out, p, 0.0, "Typical: out = one-hot")
        p, q = instances.pair(rng, zeros=False)
        out = cr.output_law(p, q, cr.Typical())
        bound = max(-math.log(0.09), oracles.entropy(q) - math.log(0.3))
        tally.at_most(oracles.divergence("kl", out / out.sum(), q), bound, 1e-12, "Typical: KL")
        k = int(rng.integers(1, len(q) + 1))
        out = cr.output_law(p, q, cr.TopK(k))
        floor = float(np.sort(q)[-k])
        spent = oracles.divergence("kl", out / out.sum(), q)
        tally.at_most(spent, -math.log(floor), 1e-12, "TopK: KL <= log(1/floor)")
    return tally.result()


CLAIMS = (
    Claim("7a", "output law",
          "Lenience(factor): out_i <= factor q_i, KL(out, q) <= out(S) log factor; no rule with "
          "out <= factor q accepts more.",
          DERIVATION, FIGURE, lenience),
    Claim("7b", "output law",
          "Ensemble(w): out = w q + (1-w) p and TV = (1-w) TV(p, q) where q covers p; else "
          "TV = (1-w) (TV(p, q) - p(q = 0)).",
          DERIVATION, FIGURE, ensemble),
    Claim("7c", "output law",
          "ReducibleFuzzy(T, D): D(out, q) <= T, also where p leaves q's support; accepts no more "
          "than Mentored(T, D).",
          DERIVATION, FIGURE, fuzzy),
    Claim("7d", "any law",
          "Typical keeps n iff the optimum of the cross-entropy problem is the one-hot law at n; "
          "that optimum never has more than two tokens.",
          DERIVATION, FIGURE, cross_entropy),
    Claim("7e", "output law",
          "Typical: a greedy draft of q's mode gives entropy 0; KL(out, q) < max(log 1/eps, "
          "H(q) + log 1/alpha). Sets: KL(out, q) <= log(1/smallest q of the set).",
          DERIVATION, FIGURE, collapse),
)  # fmt: skip
