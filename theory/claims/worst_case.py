"""Group 5e-5h: how far the output law of Cactus can get from the target, sharply."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.claim import Claim, Result, Tally
from cactus_rules.theory.instances import Row

DERIVATION = "derivations/05-output-law.md"
FIGURE = "worst_case.png"
SOLVERS = ("exact", "taylor", "closed")


def excess_variance(delta: float, solver: str) -> float:
    """The epsilon of (cap - q)^2 <= epsilon q (1 - q)."""
    return 2 * delta if solver == "taylor" else math.expm1(delta)


def worst_tail(k: int, delta: float) -> float:
    """log x_k with d(1/k, x_k) = delta, x_k < 1/k: the exact solver's worst target probability."""
    o = 1 / k

    def gap(log_x: float) -> float:
        rest = (1 - o) * (math.log1p(-o) - math.log1p(-math.exp(log_x)))
        return o * (math.log(o) - log_x) + rest - delta

    return float(brentq(gap, math.log(o) - k * delta - 5, math.log(o), xtol=1e-14))


def worst_kl(k: int, delta: float, solver: str) -> float:
    """The sharp upper end of KL(out, q) over rows with at most k >= 2 tokens of p > q > 0."""
    if solver == "exact":
        return -math.log(k) - worst_tail(k, delta)
    e = excess_variance(delta, solver)
    return math.log(1 + e * k / 2 + math.sqrt(e * e * k * k / 4 + e * (k - 1)))


def worst_pair(k: int, delta: float, solver: str) -> tuple[Row, Row]:
    """Draft and target rows on k + 1 tokens that reach `worst_kl`."""
    x = math.exp(-worst_kl(k, delta, solver)) / k
    return np.append(np.full(k, 1 / k), 0.0), np.append(np.full(k, x), 1 - k * x)


def _kl(out: Row, q: Row) -> float:
    return oracles.divergence("kl", out / out.sum(), q)


def reachable(rng: np.random.Generator, deadline: float) -> Result:
    """Every law below the caps comes out of some draft; no draft gets out of that box."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        p, q = instances.pair(rng)
        delta, solver = instances.budget(rng), str(rng.choice(SOLVERS))
        rule = cr.Cactus(delta, solver=solver)  # type: ignore[arg-type]
        caps = np.array([oracles.cap(float(x), delta, "kl", solver) for x in q])
        tally.at_most((cr.output_law(p, q, rule) - caps).max(), 0.0, 1e-12, "out <= cap")
        inside = np.minimum(rng.dirichlet(np.ones(len(q))), caps)
        law = inside + (1 - inside.sum()) * (caps - inside) / (caps - inside).sum()
        tally.equal(cr.output_law(law, q, rule), law, 1e-12, "a draft below the caps is kept whole")
    return tally.result()


def sharp(rng: np.random.Generator, deadline: float) -> Result:
    """KL(out, q) <= the sharp bound, on rows near the worst case too; the bound is attained."""
    tally = Tally()
    for _ in tally.rounds(deadline, 60):
        k, delta = int(rng.integers(2, 12)), instances.budget(rng, -2, 0)
        for solver in SOLVERS:
            rule = cr.Cactus(delta, solver=solver)  # type: ignore[arg-type]
            bound = worst_kl(k, delta, solver)
            p, q = worst_pair(k, delta, solver)
            tally.equal(_kl(cr.output_law(p, q, rule), q) / bound, 1.0, 1e-6, f"{solver}: attained")
            noise = float(rng.choice([0.01, 0.1, 1]))
            near = [instances.normalised(r * np.exp(rng.normal(0, noise, k + 1))) for r in (p, q)]
            spent = _kl(cr.output_law(near[0], near[1], rule), near[1])
            tally.at_most(spent, bound, 1e-9, f"{solver}: k={k} delta={delta:.4g}")
            p, q = instances.pair(rng)
            bold = max(int(((p > q) & (q > 0)).sum()), 2)
            spent = _kl(cr.output_law(p, q, rule), q)
            tally.at_most(spent, worst_kl(bold, delta, solver), 1e-9, f"{solver}: random pair")
    return tally.result()


def any_divergence(rng: np.random.Generator, deadline: float) -> Result:
    """D_f(out, q) <= k delta + f(0) TV(out, q), f normalised."""
    at_zero = {"kl": 1.0, "tv": 0.5, "chi2": 1.0, "hellinger": 0.5, "js": 0.5 * math.log(2)}
    tally = Tally()
    for index in tally.rounds(deadline, 80):
        name = list(at_zero)[index % len(at_zero)]
        p, q = instances.pair(rng)
        delta = instances.budget(rng)
        out = cr.output_law(p, q, cr.Cactus(delta, name))
        out = out / out.sum()
        k = int(((p > q) & (q > 0)).sum())
        bound = k * delta + at_zero[name] * 0.5 * float(np.abs(out - q).sum())
        tally.at_most(oracles.divergence(name, out, q), bound, 1e-10, name)
    return tally.result()


def cauchy(rng: np.random.Generator, deadline: float) -> Result:
    """TV(out, q) <= sqrt(e q(S)(k - q(S))), Taylor and closed; sqrt(2 delta k out(S)), exact."""
    tally = Tally()
    for _ in tally.rounds(deadline, 80):
        p, q = instances.pair(rng, 2, 24)
        delta = instances.budget(rng)
        bold = (p > q) & (q > 0)
        k, mass = int(bold.sum()), float(q[bold].sum())
        for solver in SOLVERS:
            out = cr.output_law(p, q, cr.Cactus(delta, solver=solver))  # type: ignore[arg-type]
            bound = math.sqrt(2 * delta * k * float(out[bold].sum()))
            if solver != "exact":
                bound = math.sqrt(excess_variance(delta, solver) * mass * max(k - mass, 0.0))
            tally.at_most(0.5 * np.abs(out - q).sum(), bound, 1e-9, f"{solver}: k={k}")
    return tally.result()


def no_constant(rng: np.random.Generator, deadline: float) -> Result:
    """Three tokens make KL(out, q)/delta as large as one likes; uniform rows reach log(V/k)."""
    tally = Tally()
    for _ in tally.rounds(deadline, 10):
        delta = float(10 ** rng.uniform(-5, -3))
        half = math.sqrt(delta / 2)
        q = np.array([0.5, 0.5 - half, half])
        p = np.array([0.5 + half, 0.5 - half, 0.0])
        ratio = _kl(cr.output_law(p, q, cr.Cactus(delta, solver="taylor")), q) / delta
        tally.at_most(1 / math.sqrt(2 * delta), ratio, 0.0, "three tokens")
        size = int(rng.integers(200, 2000))
        k = next(k for k in range(2, size) if oracles.cap(1 / size, 0.5) >= 1 / k)
        p, q = np.zeros(size), np.full(size, 1 / size)
        p[:k] = 1 / k
        with mp.workdps(20):
            reached = math.log(size / k)
        out = cr.output_law(p, q, cr.Cactus(0.5))
        tally.equal(float((out[:k] * np.log(out[:k] * size)).sum()), reached, 1e-9, "log(V/k)")
    return tally.result()


CLAIMS = (
    Claim("5e", "output law",
          "Cactus: the laws that can come out, over all drafts, are exactly those with "
          "out_i <= cap(q_i) for every i.",
          DERIVATION, FIGURE, reachable),
    Claim("5f", "output law",
          "Cactus: KL(out, q) <= log(1/(k x_k)) <= k delta + 1 (exact; d(1/k, x_k) = delta) and "
          "<= log(1 + ek/2 + sqrt(e^2 k^2/4 + e(k-1))) < log(2 + ek) (taylor: e = 2 delta, closed: "
          "e = e^delta - 1), k >= 2 the number of tokens with p > q > 0; both attained.",
          DERIVATION, FIGURE, sharp),
    Claim("5g", "output law",
          "Cactus, exact solver for f: D_f(out, q) <= k delta + f(0) TV(out, q).",
          DERIVATION, FIGURE, any_divergence),
    Claim("5h", "output law",
          "Cactus: TV(out, q) <= sqrt(e q(S) (k - q(S))) (taylor, closed) and "
          "<= sqrt(2 delta k out(S)) (exact), S the tokens with p > q > 0.",
          DERIVATION, FIGURE, cauchy),
    Claim("5i", "output law",
          "No function of delta alone bounds KL(out, q) of Cactus: the ratio to delta passes "
          "1/sqrt(2 delta) on three tokens, and uniform rows reach log(V/k).",
          DERIVATION, FIGURE, no_constant),
)  # fmt: skip
