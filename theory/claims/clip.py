"""Group 6: the clip rule (Mentored, Band): optimality, edges, price."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linprog

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import EPS, Claim, Result, Tally
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/06-clip-rule.md"
FIGURE = "pareto_real.png"


def _accepts(p: Row, q: Row, rule: cr.Rule) -> float:
    return float(cr.audit(p, q, rule).acceptance_rate)


def optimal(rng: np.random.Generator, deadline: float) -> Result:
    """Acceptance equals a general convex solver's, for every strictly convex divergence."""
    tally = Tally()
    for index in tally.rounds(deadline, 18):
        name = oracles.STRICT[index % len(oracles.STRICT)]
        p, q = instances.pair(rng, 3, 6)
        if q[q > 0].min() < 1e-4:
            continue
        delta = instances.budget(rng, -2, -0.3)
        best = oracles.convex_optimum(p, q, delta, name)
        found = _accepts(p, q, cr.Mentored(delta, name))
        tally.at_most(best, found, 2e-5, f"{name}: no law found by SLSQP accepts more")
        tally.equal(found, np.minimum(p, oracles.mentored_law(p, q, delta, name)).sum(), 1e-7, name)
    return tally.result()


def promise(rng: np.random.Generator, deadline: float) -> Result:
    """D(out, q) <= delta, and = delta unless everything drafted inside q's support is accepted."""
    tally = Tally()
    for index in tally.rounds(deadline, 90):
        name = (*oracles.NAMES, "max")[index % 8]
        p, q = instances.pair(rng, 2, 12)
        delta = instances.budget(rng)
        rule = cr.Mentored(delta, name)
        out = cr.output_law(p, q, rule)
        spent = oracles.divergence(name, out / out.sum(), q)
        # The square root of a lower end b near 0 turns an ulp of mass into its square root.
        steep = name == "hellinger" and out[q > 0].min() < 1e-8 * q[q > 0].min()
        slack = (1e-8 if steep else 64 * EPS) * (1 + delta)
        tally.at_most(spent, delta, slack, f"{name}: D(out, q) <= delta")
        if _accepts(p, q, rule) < p[q > 0].sum() - 1e-9:
            tally.at_most(delta, spent, 1e-7 * (1 + delta), f"{name}: the budget is used up")
    return tally.result()


def unbeaten(rng: np.random.Generator, deadline: float) -> Result:
    """Any rule's acceptance <= sum min(p, out) <= Mentored's at the same divergence of the output.

    The rules tried are random: token n is kept with an arbitrary probability, and replaced from an
    arbitrary law that may depend on n.
    """
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng, 2, 7, zeros=False)
        size = len(p)
        keep = rng.uniform(0, 1, size) ** float(rng.choice([0.1, 1.0]))
        redraw = rng.dirichlet(np.ones(size), size)
        if rng.random() < 0.5:  # sensible rules: redraw where the target is short of mass
            short = np.maximum(q - p, 0) + 1e-9
            redraw = instances.normalised(short) * np.ones((size, 1))
            keep = np.minimum(1, rng.uniform(0.8, 2.5, size) * q / p) if (p > 0).all() else keep
        out = p * keep + (p * (1 - keep)) @ redraw
        accepted = float((p * keep).sum())
        tally.at_most(accepted, np.minimum(p, out).sum(), 64 * EPS, "accepted <= sum min(p, out)")
        for name in ("kl", "chi2", "hellinger"):
            delta = oracles.divergence(name, out, q)
            tally.at_most(accepted, _accepts(p, q, cr.Mentored(delta, name)), 1e-8, name)
    return tally.result()


def ties_in_tv(rng: np.random.Generator, deadline: float) -> Result:
    """For total variation every law between q and p is optimal: a linear program agrees."""
    tally = Tally()
    for _ in tally.rounds(deadline, 30):
        p, q = instances.pair(rng, 2, 8, zeros=False)
        far = 0.5 * float(np.abs(p - q).sum())
        delta = float(rng.uniform(0, 1.2)) * far
        size = len(p)
        eye, zero = np.eye(size), np.zeros((size, size))
        # (h, t, d): t <= p, t <= h, d >= |h - q|, sum d <= 2 delta, maximise sum t
        rows = np.block([[-eye, eye, zero], [eye, zero, -eye], [-eye, zero, -eye],
                         [np.zeros((1, 2 * size)), np.ones((1, size))]])  # fmt: skip
        limits = np.concatenate([np.zeros(size), q, -q, [2 * delta]])
        best = linprog(
            np.concatenate([np.zeros(size), -np.ones(size), np.zeros(size)]), rows, limits,
            np.concatenate([np.ones(size), np.zeros(2 * size)])[None], [1.0],
            bounds=[(0, 1)] * size + [(0, x) for x in p] + [(0, 1)] * size,
        )  # fmt: skip
        rate = _accepts(p, q, cr.Mentored(delta, "tv"))
        tally.equal(rate, -best.fun, 1e-6, "Mentored(delta, 'tv') = linear program")
        if 0 < delta < far:
            mixed = _accepts(p, q, cr.Ensemble(1 - delta / far))
            tally.equal(mixed, rate, 1e-8, "Ensemble accepts the same at the same TV")
    return tally.result()


def inside_support(rng: np.random.Generator, deadline: float) -> Result:
    """Leaving q's support gains nothing while the budget still clips a token of it."""
    tally = Tally()
    costs = {"reverse_kl": 1.0, "neyman": 1.0, "hellinger": 0.5, "js": 0.5 * math.log(2)}
    for index in tally.rounds(deadline, 16):
        name = list(costs)[index % len(costs)]
        p, q = instances.pair(rng, 3, 7)
        q = instances.normalised(np.append(q, 0.0))
        p = instances.normalised(np.append(p, float(rng.uniform(0.05, 0.5))))
        delta = instances.budget(rng, -3, -0.5)
        rate = _accepts(p, q, cr.Mentored(delta, name))
        outside = float(p[q == 0].sum())
        if rate > 1 - outside - 1e-9:
            tally.at_most(1.0, rate + outside, 1e-9, "the loss is at most the mass outside")
            continue
        # The best law with mass m outside: scale the problem on the support to mass 1 - m.
        for m in (1e-4, 1e-3, 1e-2, 0.3 * outside):
            h = _best_with_mass_outside(p, q, delta, name, min(m, outside))
            tally.at_most(h, rate, 1e-7, f"{name}: mass {m:.2g} outside accepts no more")
    return tally.result()


def _best_with_mass_outside(p: Row, q: Row, delta: float, name: str, mass: float) -> float:
    """Best acceptance over clip laws of total 1 - mass on the support, `mass` kept outside."""
    inside, best = q > 0, 0.0
    top = float((p[inside] / q[inside]).max())
    for a in np.geomspace(1 - mass, max(top, 1.001), 120):
        low, high = 0.0, 1.0
        for _ in range(40):
            b = (low + high) / 2
            over = np.clip(p, b * q, max(a, b) * q)[inside].sum() > 1 - mass
            low, high = (low, b) if over else (b, high)
        h = np.clip(p, low * q, max(a, low) * q)
        h = h + mass * (~inside) * p / p[~inside].sum()
        rate = float(np.minimum(p, h).sum())
        fits = abs(h.sum() - 1) < 1e-9
        if fits and rate > best and oracles.divergence(name, h, q, 18) <= delta:
            best = rate
    return best


def one_hot(rng: np.random.Generator, deadline: float) -> Result:
    """With a one-hot draft Cactus (exact) and Mentored have one output law: the surrogate."""
    tally = Tally()
    for index in tally.rounds(deadline, 60):
        name = oracles.NAMES[index % len(oracles.NAMES)]
        q = instances.row(rng, int(rng.integers(2, 9)), int(rng.random() < 0.3))
        n = int(rng.choice(np.flatnonzero(q)))
        p, delta = np.eye(len(q))[n], instances.budget(rng)
        cap = oracles.cap(float(q[n]), delta, name)
        scale = (1 - cap) / (1 - q[n]) if q[n] < 1 else 0.0
        law = np.where(np.arange(len(q)) == n, cap, scale * q)
        for rule in (cr.Cactus(delta, name), cr.Mentored(delta, name)):
            tally.equal(cr.output_law(p, q, rule), law, 1e-8, f"{type(rule).__name__} {name}")
    return tally.result()


def band_bound(rng: np.random.Generator, deadline: float) -> Result:
    """Band(w): |log(out/q)| <= w, KL <= y - 1 - log y <= w^2/8 both ways; two tokens attain it."""
    tally = Tally()

    def worst(y: float) -> float:
        return y - 1 - math.log(y)

    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng, zeros=False)
        width = float(10 ** rng.uniform(-1.5, 0.8))
        y, z = width / -math.expm1(-width), width / math.expm1(width)
        out = cr.output_law(p, q, cr.Band(width))
        out = out / out.sum()
        tally.at_most(oracles.divergence("kl", out, q), worst(y), 1e-12, "KL(out, q)")
        tally.at_most(max(worst(y), worst(z)), width * width / 8, 1e-12, "w^2 / 8")
        tally.at_most(oracles.divergence("reverse_kl", out, q), worst(z), 1e-12, "KL(q, out)")
        tally.at_most(oracles.divergence("max", out, q), width, 1e-10, "max ratio")
        tally.at_most(oracles.divergence("max", q, out), width, 1e-10, "max ratio, reversed")
        x = (y - 1) / math.expm1(width)
        two = cr.output_law(np.array([1.0, 0.0]), np.array([x, 1 - x]), cr.Band(width))
        spent = oracles.divergence("kl", two / two.sum(), np.array([x, 1 - x]))
        tally.equal(spent, worst(y), 1e-9, "attained")
    return tally.result()


def price(rng: np.random.Generator, deadline: float) -> Result:
    """Acceptance is concave in the KL budget with slope 1/log(a/b)."""
    tally = Tally()
    for _ in tally.rounds(deadline, 40):
        p, q = instances.pair(rng, 3, 9, zeros=False)
        width = float(rng.uniform(0.05, 2))
        out = cr.output_law(p, q, cr.Band(width))
        spent, rate = oracles.divergence("kl", out / out.sum(), q), _accepts(p, q, cr.Band(width))
        if rate > 1 - 1e-9:
            continue
        for other in spent * np.array([0.1, 0.5, 0.9, 1.1, 2.0, 10.0]):
            line = rate + (other - spent) / width
            tally.at_most(_accepts(p, q, cr.Mentored(other)), line, 1e-9, "below the tangent")
    return tally.result()


CLAIMS = (
    Claim("6a", "output law",
          "Mentored(delta, f) accepts the maximum of sum min(p, h) over laws h in q's support with "
          "D_f(h, q) <= delta, every strictly convex f.",
          DERIVATION, FIGURE, optimal),
    Claim("6b", "output law",
          "Mentored: D(out, q) <= delta, used up unless all that q allows is accepted.",
          DERIVATION, FIGURE, promise),
    Claim("6c", "output law",
          "At one position no rule of any kind accepts more than sum min(p, out), nor more than "
          "Mentored at the same divergence of the output law.",
          DERIVATION, FIGURE, unbeaten),
    Claim("6d", "output law",
          "Total variation: acceptance <= Lossless + delta; every law between q and p attains it.",
          DERIVATION, FIGURE, ties_in_tv),
    Claim("6e", "output law",
          "Staying inside q's support costs nothing while the budget clips a token of it, and at "
          "most the draft's mass outside after that.",
          DERIVATION, FIGURE, inside_support),
    Claim("6f", "output law",
          "One-hot draft: Cactus (exact) and Mentored have the same output law, the surrogate.",
          DERIVATION, FIGURE, one_hot),
    Claim("6g", "output law",
          "Band(w): KL(out, q) and KL(q, out) <= w^2/8; exact constant of the first y-1-log y, "
          "y = w/(1-e^-w), attained by two tokens.",
          DERIVATION, FIGURE, band_bound),
    Claim("6h", "output law",
          "Acceptance of Mentored is concave in its KL budget, with slope 1/log(a/b).",
          DERIVATION, FIGURE, price),
)  # fmt: skip
