"""`verify` integrated exactly over its uniforms, and the laws of chains that it must produce.

A coin matters only through the side of its threshold, a draw only through the interval between
two steps of an inverse CDF. So a finite set of uniforms, with the lengths of their intervals as
weights, integrates `verify`. Thresholds and steps come from `enumeration`, not from the library:
two points just inside the ends of every interval find any that lies elsewhere.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator

import enumeration
import numpy as np

import cactus_rules as cr

Row = list[float]
Law = dict[tuple[int, ...], float]

INSET = 1e-6
"""How far inside an interval its points lie, as a share: more than a searched threshold errs."""


def interval(low: float, high: float) -> list[tuple[float, float]]:
    """Two points (u, weight) just inside [low, high); none if it is empty but for rounding."""
    if high - low <= 1e-13:
        return []
    inset = INSET * (high - low)
    last = min(high - inset, 1 - 2.0**-53)
    return [(low + inset, (high - low) / 2), (last, (high - low) / 2)]


def draws(law: Row) -> list[tuple[float, float]]:
    """Points (u, weight) for drawing from a law by inverse CDF in id order."""
    steps = np.concatenate([[0.0], np.cumsum(law) / np.sum(law)])
    return [point for low, high in itertools.pairwise(steps) for point in interval(low, high)]


def _coins(keep: float, accepted: bool) -> list[tuple[float, float]]:
    return interval(0.0, keep) if accepted else interval(keep, 1.0)


def token_cases(
    p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool
) -> Iterator[tuple[tuple[int, ...], np.ndarray, float]]:
    """(draft, uniforms (K+1, 2), weight) that integrate the token walk over drafts and uniforms."""
    k = len(p)
    steps = [
        {n: (keep, law) for n, keep, law in enumeration.steps(*rows, rule, one_hot)}
        for rows in zip(p.tolist(), q.tolist(), strict=False)
    ]
    bonus = [float(x) for x in q[k]]
    for draft in itertools.product(*(step.keys() for step in steps)):
        drafted = float(np.prod([p[i][n] for i, n in enumerate(draft)]))
        for stop in range(k + 1):
            coins = [_coins(steps[i][draft[i]][0], True) for i in range(stop)]
            coins += [_coins(steps[stop][draft[stop]][0], False)] if stop < k else []
            last = steps[stop][draft[stop]][1] if stop < k else bonus
            for *chosen, (u, weight) in itertools.product(*coins, draws(last)):
                # Numbers that nothing may look at are set to what would show.
                uniforms = np.full((k + 1, 2), 0.999)
                uniforms[: len(chosen), 0] = [coin for coin, _ in chosen]
                uniforms[stop, 1] = u
                yield draft, uniforms, drafted * weight * float(np.prod([w for _, w in chosen]))


def integrate(
    p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool = False, walk: str = "token"
) -> tuple[Law, float]:
    """The law of the emitted tokens under `verify`, and the expected number of accepted ones."""
    make = token_cases if walk == "token" else block_cases
    cases = list(make(p, q, rule, one_hot))
    drafts, uniforms, weights = zip(*cases, strict=True)
    many = len(cases)
    v = cr.verify(
        None if one_hot else np.broadcast_to(p, (many, *p.shape)),
        np.broadcast_to(q, (many, *q.shape)),
        np.array(drafts, dtype=np.int64).reshape(many, len(p)),
        rule,
        uniforms=np.array(uniforms),
        walk=walk,
    )
    law: Law = defaultdict(float)
    for row, weight in zip(v.token_ids.tolist(), weights, strict=True):
        law[tuple(n for n in row if n >= 0)] += weight
    return dict(law), float(np.dot(v.num_accepted, weights))


def enumerated(p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool = False) -> Law:
    """The law of the emitted tokens of the token walk, position by position."""
    law: Law = defaultdict(float)
    alive: Law = {(): 1.0}
    for p_row, q_row in zip(p.tolist(), q.tolist(), strict=False):
        longer: Law = defaultdict(float)
        for n, keep, replacement in enumeration.steps(p_row, q_row, rule, one_hot):
            for prefix, mass in alive.items():
                longer[(*prefix, n)] += mass * p_row[n] * keep
                for i, x in enumerate(replacement):
                    law[(*prefix, i)] += mass * p_row[n] * (1 - keep) * x
        alive = longer
    for prefix, mass in alive.items():
        for i, x in enumerate(q[-1].tolist()):
            law[(*prefix, i)] += mass * x
    return dict(law)


def completed(law: Law, laws: list[Row]) -> Law:
    """The law of whole sequences, where what was not emitted yet is drawn from the given laws."""
    whole: Law = defaultdict(float)
    for prefix, mass in law.items():
        rest = [enumerate(row) for row in laws[len(prefix) :]]
        for tail in itertools.product(*rest):
            whole[prefix + tuple(i for i, _ in tail)] += mass * float(np.prod([x for _, x in tail]))
    return dict(whole)


def product(laws: list[Row]) -> Law:
    """The law of independent tokens."""
    return completed({(): 1.0}, laws)


def distance(left: Law, right: Law) -> float:
    """The largest difference of two laws of sequences."""
    keys = left.keys() | right.keys()
    return max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in keys)


def block_cases(
    p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool
) -> Iterator[tuple[tuple[int, ...], np.ndarray, float]]:
    """As `token_cases`, for block verification by the formulas of its paper."""
    k = len(p)
    for draft in itertools.product(*([n for n, x in enumerate(row) if x > 0] for row in p)):
        drafted = float(np.prod([p[i][n] for i, n in enumerate(draft)]))
        told = [list(np.eye(len(q[0]))[n]) for n in draft] if one_hot else p.tolist()
        rows = zip(told, q.tolist(), strict=False)
        h = [enumeration.output(p_row, q_row, rule)[0] for p_row, q_row in rows]
        r = [1.0]
        for i, n in enumerate(draft):
            r.append(min(1.0, r[-1] * h[i][n] / told[i][n]))
        surplus = [
            [max(r[i] * x - y, 0.0) for x, y in zip(h[i], told[i], strict=True)] for i in range(k)
        ]
        z = [sum(row) for row in surplus]
        t = [z[i] / (z[i] + 1 - r[i]) if z[i] + 1 - r[i] > 0 else 1.0 for i in range(1, k)]
        t.append(r[k])
        for sides in itertools.product([True, False], repeat=k):
            stop = max((i + 1 for i, passed in enumerate(sides) if passed), default=0)
            last = surplus[stop] if stop < k else q[k].tolist()
            coins = [_coins(min(1.0, x), passed) for x, passed in zip(t, sides, strict=True)]
            points = draws(last) if sum(last) > 0 else [(0.5, 1.0)]
            for *chosen, (u, weight) in itertools.product(*coins, points):
                uniforms = np.full((k + 1, 2), 0.999)
                uniforms[:k, 0] = [coin for coin, _ in chosen]
                uniforms[stop, 1] = u
                yield draft, uniforms, drafted * weight * float(np.prod([w for _, w in chosen]))
