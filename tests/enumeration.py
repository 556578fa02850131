"""Output laws by enumeration over drafted tokens, from each rule's original statement.

Plain loops over a small vocabulary, written without the library's `cap`, `scale` and residual: a
slow stranger for `output_law` and `verify`. A rule is a function of the rows that returns, for
every drafted token n, the probability of keeping it and the law that replaces it otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import searches

import cactus_rules as cr

Row = list[float]
Step = Callable[[Row, Row, Any, int], tuple[float, Row]]
"""(draft, target, rule, n) -> probability of keeping n, law of the token that replaces it."""


class BorderlineError(Exception):
    """A discontinuous rule within rounding of its jump: either side of it is right."""


def _decided(left: float, right: float) -> bool:
    """left > right, unless that hangs on the last digits; exact ties are decided."""
    if left != right and abs(left - right) < 1e-9 * (abs(left) + abs(right)):
        raise BorderlineError
    return left > right


def normalised(weights: Row, rejected: int, q: Row) -> Row:
    """A residual law; the target without the rejected token where the weights are all 0."""
    if sum(weights) == 0:
        weights = [0.0 if i == rejected else y for i, y in enumerate(q)]
    if sum(weights) == 0:
        weights = list(q)
    return [w / sum(weights) for w in weights]


def _towards(h: Row, p: Row, q: Row, n: int) -> tuple[float, Row]:
    """Speculative sampling towards a law h: keep with min(1, h_n/p_n), else (h - p)+."""
    surplus = [max(x - y, 0.0) for x, y in zip(h, p, strict=True)]
    return min(1.0, h[n] / p[n]), normalised(surplus, n, q)


def _lossless(p: Row, q: Row, rule: Any, n: int) -> tuple[float, Row]:
    return _towards(q, p, q, n)


def _sample_match(p: Row, q: Row, rule: Any, n: int) -> tuple[float, Row]:
    # Draw t from q; keep n iff t = n, else emit t.
    return q[n], normalised([0.0 if t == n else y for t, y in enumerate(q)], n, q)


def _cactus(p: Row, q: Row, rule: cr.Cactus, n: int) -> tuple[float, Row]:
    if q[n] < searches.SMALLEST_BOOSTED and rule.solver == "exact":
        surrogate = q
    else:
        g = searches.boost(q[n], rule)
        rest = math.fsum(y for i, y in enumerate(q) if i != n)
        shrink = (1 - g) / rest if rest > 0 else 0.0
        surrogate = [g if i == n else y * shrink for i, y in enumerate(q)]
    return _towards(surrogate, p, q, n)


def _mentored(p: Row, q: Row, rule: cr.Mentored, n: int) -> tuple[float, Row]:
    return _towards(searches.mentored(p, q, rule), p, q, n)


def _band(p: Row, q: Row, rule: cr.Band, n: int) -> tuple[float, Row]:
    return _towards(searches.band(p, q, rule.width), p, q, n)


def _lenience(p: Row, q: Row, rule: cr.Lenience, n: int) -> tuple[float, Row]:
    return min(1.0, rule.factor * q[n] / p[n]), _towards(q, p, q, n)[1]


def _ensemble(p: Row, q: Row, rule: cr.Ensemble, n: int) -> tuple[float, Row]:
    w = rule.weight
    mixture = [w * y + (1 - w) * x for x, y in zip(p, q, strict=True)]
    return min(1.0, mixture[n] / p[n]), _towards(q, p, q, n)[1]


def _reducible_fuzzy(p: Row, q: Row, rule: cr.ReducibleFuzzy, n: int) -> tuple[float, Row]:
    keep, replacement = _towards(q, p, q, n)
    gap = searches.divergence(rule.divergence, p, q)
    near = abs(gap - rule.threshold) <= 1e-15
    if near and p != q:
        raise BorderlineError
    return (1.0 if near or not _decided(gap, rule.threshold) else keep), replacement


def _typical(p: Row, q: Row, rule: cr.Typical, n: int) -> tuple[float, Row]:
    entropy = -math.fsum(y * math.log(y) for y in q if y > 0)
    threshold = min(rule.epsilon, rule.alpha * math.exp(-entropy))
    return (1.0 if _decided(q[n], threshold) else 0.0), list(q)


def _threshold(p: Row, q: Row, rule: cr.Threshold, n: int) -> tuple[float, Row]:
    # SGLang: the draft's probabilities are not looked at; the token is taken out of the target.
    keep = 1.0 if q[n] >= rule.single else min(1.0, q[n] / rule.acc)
    return keep, normalised([0.0 if i == n else y for i, y in enumerate(q)], n, q)


def _falling(q: Row) -> list[int]:
    return sorted(range(len(q)), key=lambda i: (-q[i], i))


def _top_k(q: Row, rule: cr.TopK) -> list[int]:
    return _falling(q)[: rule.k]


def _nucleus(q: Row, rule: cr.Nucleus) -> list[int]:
    kept: list[int] = []
    for i in _falling(q):
        mass = math.fsum(q[j] for j in kept)
        if rule.mass == 1.0:
            kept += [i] if q[i] > 0 or not kept else []
        elif not kept or _decided(rule.mass, mass):
            kept.append(i)
    return kept


def _min_p(q: Row, rule: cr.MinP) -> list[int]:
    return [i for i in _falling(q) if not _decided(rule.ratio * max(q), q[i])]


def _in_set(members: Callable[[Row, Any], list[int]]) -> Step:
    def step(p: Row, q: Row, rule: Any, n: int) -> tuple[float, Row]:
        chosen = set(members(q, rule))
        inside = [y if i in chosen else 0.0 for i, y in enumerate(q)]
        return float(n in chosen), normalised(inside, n, q)

    return step


def _relaxed_top_n(p: Row, q: Row, rule: cr.RelaxedTopN, n: int) -> tuple[float, Row]:
    best = _falling(q)[0]
    candidates = [i for i in _falling(q)[: rule.n] if not _decided(max(q) - rule.gap, q[i])]
    return float(n in candidates), [float(i == best) for i in range(len(q))]


STEPS: dict[type, Step] = {
    cr.Lossless: _lossless,
    cr.SampleMatch: _sample_match,
    cr.Cactus: _cactus,
    cr.Mentored: _mentored,
    cr.Band: _band,
    cr.Lenience: _lenience,
    cr.Ensemble: _ensemble,
    cr.ReducibleFuzzy: _reducible_fuzzy,
    cr.Typical: _typical,
    cr.Threshold: _threshold,
    cr.TopK: _in_set(_top_k),
    cr.Nucleus: _in_set(_nucleus),
    cr.MinP: _in_set(_min_p),
    cr.RelaxedTopN: _relaxed_top_n,
}


def steps(p: Row, q: Row, rule: cr.Rule, one_hot: bool) -> Iterator[tuple[int, float, Row]]:
    """(n, probability of keeping it, law that replaces it) for every token that p can draft."""
    for n, drafted in enumerate(p):
        if drafted == 0:
            continue
        told = [float(i == n) for i in range(len(p))] if one_hot else p
        keep, replacement = STEPS[type(rule)](told, q, rule, n)
        # No rule may emit what the target excludes.
        yield n, (keep if q[n] > 0 else 0.0), replacement


def output(p: Row, q: Row, rule: cr.Rule, one_hot: bool = False) -> tuple[Row, float]:
    """The output law and the acceptance rate."""
    law, rate = [0.0] * len(p), 0.0
    for n, keep, replacement in steps(p, q, rule, one_hot):
        rate += p[n] * keep
        law[n] += p[n] * keep
        for i, x in enumerate(replacement):
            law[i] += p[n] * (1 - keep) * x
    return law, rate
