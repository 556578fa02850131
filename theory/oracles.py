"""Slow, independent references: textbook sums, bisection, enumeration, general convex solvers.

Nothing here imports the package under test. Divergences are written as their textbook sums (in
mpmath or plain floats), never through a normalised generator; laws are computed token by token.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import mpmath as mp
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

Row = NDArray[np.float64]
Cap = Callable[[float], float]

NAMES = ("kl", "reverse_kl", "tv", "chi2", "neyman", "hellinger", "js")
STRICT = ("kl", "reverse_kl", "chi2", "neyman", "hellinger", "js")
"""The strictly convex ones."""


def _term(name: str, h: mp.mpf, q: mp.mpf) -> mp.mpf:
    """One token's share of the textbook sum, for h, q > 0."""
    if name == "kl":
        return h * mp.log(h / q)
    if name == "reverse_kl":
        return q * mp.log(q / h)
    if name == "tv":
        return abs(h - q) / 2
    if name == "chi2":
        return (h - q) ** 2 / q
    if name == "neyman":
        return (h - q) ** 2 / h
    if name == "hellinger":
        return (h + q) / 2 - mp.sqrt(h * q)
    middle = (h + q) / 2
    return (h * mp.log(h / middle) + q * mp.log(q / middle)) / 2


def _limit(name: str, h: mp.mpf, q: mp.mpf) -> mp.mpf:
    """The same where h or q is 0."""
    if h == 0 and q == 0:
        return mp.mpf(0)
    if h == 0:
        return {"kl": mp.mpf(0), "tv": q / 2, "chi2": q, "hellinger": q / 2,
                "js": q * mp.log(2) / 2}.get(name, mp.inf)  # fmt: skip
    return {"reverse_kl": mp.mpf(0), "tv": h / 2, "neyman": h, "hellinger": h / 2,
            "js": h * mp.log(2) / 2}.get(name, mp.inf)  # fmt: skip


def divergence(name: str, h: Row, q: Row, digits: int = 30) -> float:
    """D(h, q) by its textbook sum, in mpmath."""
    with mp.workdps(digits):
        if name == "max":
            ratios = [mp.inf if b == 0 else mp.mpf(float(a)) / mp.mpf(float(b))
                      for a, b in zip(h, q, strict=True) if a > 0]  # fmt: skip
            return float(mp.log(max(ratios)))
        total = mp.mpf(0)
        for a, b in zip(h, q, strict=True):
            x, y = mp.mpf(float(a)), mp.mpf(float(b))
            total += _term(name, x, y) if x > 0 and y > 0 else _limit(name, x, y)
        return float(total)


def alpha_two_point(order: float, g: mp.mpf, q: mp.mpf) -> mp.mpf:
    """The alpha-divergence (sum h^a q^(1-a) - 1) / (a (a - 1)) of two coins, orders not 0 or 1."""
    a = mp.mpf(order)
    total = -mp.mpf(1)
    for x, y in ((g, q), (1 - g, 1 - q)):
        if x > 0:
            total += x**a * y ** (1 - a)
        elif a < 0:
            return mp.inf
    return total / (a * (a - 1))


def two_point(name: str, g: mp.mpf, q: mp.mpf) -> mp.mpf:
    """D between the coins (g, 1-g) and (q, 1-q), at the working precision."""
    total = mp.mpf(0)
    for x, y in ((g, q), (1 - g, 1 - q)):
        total += _term(name, x, y) if x > 0 and y > 0 else _limit(name, x, y)
    return total


def exact_cap(two: Callable[[mp.mpf, mp.mpf], mp.mpf], q_n: float, delta: float) -> mp.mpf:
    """The largest g in [q_n, 1] with two(g, q_n) <= delta, by bisection, at working precision."""
    q, budget = mp.mpf(q_n), mp.mpf(delta)
    if q == 0 or q >= 1:
        return q
    if two(mp.mpf(1), q) <= budget:
        return mp.mpf(1)
    # Bisection in the logit: g and 1 - g both get full relative precision.
    low, high = mp.log(q) - mp.log(1 - q), mp.mpf(1200)
    for _ in range(int(mp.mp.prec) + 16):
        middle = (low + high) / 2
        if two(1 / (1 + mp.exp(-middle)), q) <= budget:
            low = middle
        else:
            high = middle
    return 1 / (1 + mp.exp(-low))


def float_two_point(name: str) -> Callable[[float, float], float]:
    """`two_point` for floats of ordinary size."""
    return lambda g, q: float(two_point(name, mp.mpf(g), mp.mpf(q)))


def cap(q_n: float, delta: float, name: str = "kl", solver: str = "exact") -> float:
    """Theorem 2's g as a float: formulas for the approximations, bisection for the exact one."""
    if q_n <= 0 or q_n >= 1:
        return min(q_n, 1.0)
    if solver == "exact":
        if name == "max":
            return min(1.0, math.exp(delta) * q_n)
        with mp.workdps(20):
            return float(exact_cap(lambda g, q: two_point(name, g, q), q_n, delta))
    variance = 2 * delta if solver == "taylor" else math.exp(delta) - 1
    return min(1.0, q_n + math.sqrt(variance * q_n * (1 - q_n)))


def enumerate_law(p: Row, q: Row, caps: Row, scales: Row) -> Row:
    """The output law: keep each token, or redraw from (scale q - p)+ (q itself if infinite)."""
    out = np.minimum(p, caps)
    for n in range(len(p)):
        rejected = max(p[n] - caps[n], 0.0)
        if rejected > 0:
            weights = q if math.isinf(scales[n]) else np.maximum(scales[n] * q - p, 0)
            out = out + rejected * weights / weights.sum()
    return out


def cactus_law(p: Row, q: Row, caps: Row) -> Row:
    """The output law of a rule that raises q_n to caps[n] and scales the rest to sum to 1."""
    scales = np.array([(1 - c) / (1 - x) if x < 1 else 1.0 for c, x in zip(caps, q, strict=True)])
    return enumerate_law(p, q, caps, scales)


def clip_law(p: Row, q: Row, a: float) -> tuple[Row, float]:
    """clip(p, b q, a q) with b from mass balance, and b; 0 where q = 0."""
    rejected = float(np.maximum(p - a * q, 0).sum())
    inside = q > 0

    def surplus(b: float) -> float:
        return float(np.maximum(b * q - p, 0).sum()) - rejected

    if rejected < 1e-300:
        b = min(1.0, float((p[inside] / q[inside]).min()))
    else:
        b = brentq(surplus, 0.0, 1.0, xtol=1e-16) if surplus(1.0) > 0 else 1.0
    return np.clip(p, b * q, a * q), b


def mentored_law(p: Row, q: Row, delta: float, name: str = "kl") -> Row:
    """The clip law that spends `delta`, or all that accepting everything costs."""
    inside = q > 0
    top = max(1.0, float((p[inside] / q[inside]).max()))
    if delta == 0:
        return q
    if divergence(name, clip_law(p, q, top)[0], q) <= delta:
        return clip_law(p, q, top)[0]
    root = brentq(
        lambda a: divergence(name, clip_law(p, q, a)[0], q, 18) - delta, 1.0, top, xtol=1e-13
    )
    return clip_law(p, q, root)[0]


def band_law(p: Row, q: Row, width: float) -> Row:
    """The clip law with log(a/b) = width, or p on q's support where the width allows it."""
    inside = q > 0
    top = max(1.0, float((p[inside] / q[inside]).max()))

    def excess(a: float) -> float:
        b = clip_law(p, q, a)[1]
        return math.log(a / b) - width if b > 0 else math.inf

    if excess(top) <= 0:
        return clip_law(p, q, top)[0]
    return clip_law(p, q, brentq(excess, 1.0, top, xtol=1e-14))[0]


def convex_optimum(p: Row, q: Row, delta: float, name: str) -> float:
    """max sum min(p, h), D(h||q) <= delta, supp h in supp q, by SLSQP in epigraph form.

    Variables (h, t) on the support of q, maximise sum t with t <= p, t <= h. It starts from q,
    which is feasible, and knows nothing of clipping.
    """
    inside = q > 0
    target, draft = q[inside], p[inside]
    size = len(target)
    costs: dict[str, Callable[[Row], float]] = {
        "kl": lambda h: float((h * np.log(h / target)).sum()),
        "reverse_kl": lambda h: float((target * np.log(target / h)).sum()),
        "chi2": lambda h: float(((h - target) ** 2 / target).sum()),
        "neyman": lambda h: float(((h - target) ** 2 / h).sum()),
        "hellinger": lambda h: 1 - float(np.sqrt(h * target).sum()),
        "js": lambda h: 0.5 * float(
            (h * np.log(2 * h / (h + target)) + target * np.log(2 * target / (h + target))).sum()
        ),
    }  # fmt: skip
    spent = costs[name]
    constraints = [
        {"type": "eq", "fun": lambda z: z[:size].sum() - 1},
        {"type": "ineq", "fun": lambda z: delta - spent(np.maximum(z[:size], 1e-12))},
        {"type": "ineq", "fun": lambda z: z[:size] - z[size:]},
        {"type": "ineq", "fun": lambda z: draft - z[size:]},
    ]
    best = -math.inf
    for pull in (0.0, 0.5):
        start = (1 - pull) * target + pull * (0.9 * draft / max(draft.sum(), 1e-9) + 0.1 * target)
        guess = np.concatenate([start, np.minimum(start, draft)])
        found = minimize(
            lambda z: -z[size:].sum(), guess, method="SLSQP", constraints=constraints,
            bounds=[(1e-12, 1)] * size + [(0, 1)] * size,
            options={"ftol": 1e-13, "maxiter": 400},
        )  # fmt: skip
        h = np.maximum(found.x[:size], 1e-12)
        h = h / h.sum()
        if spent(h) <= delta * (1 + 1e-6) + 1e-9:
            best = max(best, float(np.minimum(draft, h).sum()))
    return best


def entropy(law: Row) -> float:
    """H in nats."""
    positive = law[law > 0]
    return float(-(positive * np.log(positive)).sum())
