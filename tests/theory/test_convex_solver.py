"""The two optimality theorems against a conic solver (cvxpy with Clarabel), an optional extra."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.theory import instances, oracles
from cactus_rules.theory.instances import Row

cp = pytest.importorskip("cvxpy", reason="optional: pip install cvxpy clarabel")


def best(p: Row, q: Row, delta: float, name: str, inside: bool = True) -> float:
    """max sum min(p, h) over laws h with D(h, q) <= delta; inside q's support, or anywhere."""
    kept, out = np.flatnonzero(q > 0), np.flatnonzero(q == 0)
    h = cp.Variable(len(p), nonneg=True)
    a, b = h[kept], q[kept]
    cost: Any = {
        "kl": lambda: cp.sum(cp.rel_entr(a, b)),
        "reverse_kl": lambda: cp.sum(cp.rel_entr(b, a)),
        "chi2": lambda: cp.sum(cp.multiply(1 / b, cp.square(a - b))),
        "neyman": lambda: cp.sum(cp.multiply(b**2, cp.inv_pos(a))) - 1,
        "hellinger": lambda: 1 - cp.sum(cp.multiply(np.sqrt(b), cp.sqrt(a))),
        "js": lambda: (
            0.5 * cp.sum(cp.rel_entr(a, (a + b) / 2) + cp.rel_entr(b, (a + b) / 2))
            + (0.5 * math.log(2) * cp.sum(h[out]) if len(out) else 0)
        ),
    }[name]()
    limits = [cp.sum(h) == 1, cost <= delta]
    if len(out) and inside:
        limits.append(h[out] == 0)
    problem = cp.Problem(cp.Maximize(cp.sum(cp.minimum(p, h))), limits)
    return float(problem.solve(solver=cp.CLARABEL))


def pair(rng: np.random.Generator, zeros: bool) -> tuple[Row, Row]:
    while True:
        p, q = instances.pair(rng, 3, 9, zeros)
        if q[q > 0].min() > 1e-3:
            return p, q


@pytest.mark.parametrize("name", oracles.STRICT)
def test_mentored_accepts_the_optimum(name: str) -> None:
    rng = np.random.default_rng(11)
    for _ in range(8):
        p, q = pair(rng, zeros=True)
        delta = instances.budget(rng, -2, 0)
        rate = float(cr.audit(p, q, cr.Mentored(delta, name)).acceptance_rate)
        assert rate == pytest.approx(best(p, q, delta, name), abs=3e-5)


@pytest.mark.parametrize("name", oracles.STRICT)
def test_boost_is_the_optimum_for_one_drafted_token(name: str) -> None:
    rng = np.random.default_rng(12)
    for _ in range(5):
        _, q = pair(rng, zeros=False)
        n = int(rng.integers(len(q)))
        delta = instances.budget(rng, -2, 0)
        assert float(cr.boost(q[n], delta, name)) == pytest.approx(
            best(np.eye(len(q))[n], q, delta, name), abs=3e-5
        )


@pytest.mark.parametrize("name", ["reverse_kl", "neyman", "hellinger", "js"])
def test_leaving_the_support_gains_nothing_while_the_budget_binds(name: str) -> None:
    rng = np.random.default_rng(13)
    binding = 0
    while binding < 4:
        p, q = pair(rng, zeros=False)
        p, q = instances.normalised(np.append(p, 0.2)), np.append(q, 0.0)
        delta = instances.budget(rng, -3, -1)
        rate = float(cr.audit(p, q, cr.Mentored(delta, name)).acceptance_rate)
        if rate > p[q > 0].sum() - 1e-6:
            continue
        binding += 1
        assert best(p, q, delta, name, inside=False) == pytest.approx(rate, abs=1e-4)
