"""Slow searches behind `enumeration`: bisection only, divergences by their textbook sums."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import cactus_rules as cr

Row = list[float]

SMALLEST_BOOSTED = 1e-300
"""The documented limit of the exact solver, below which it leaves a token as it is."""


def divergence(record: Any, h: Row, q: Row) -> float:
    """D(h, q) by the textbook sum, in floats; infinity where q excludes what h has, and so on."""
    name = record.name
    pairs = [(x, y) for x, y in zip(h, q, strict=True) if x > 0 or y > 0]
    if name == "alpha":
        return _alpha(record.order, pairs)
    if name == "kl":
        return _kl(pairs)
    if name == "reverse_kl":
        return _kl([(y, x) for x, y in pairs])
    if name == "tv":
        return math.fsum(abs(x - y) for x, y in pairs) / 2
    if name == "chi2":
        return _alpha(2.0, pairs) * 2
    if name == "neyman":
        return _alpha(-1.0, pairs) * 2
    if name == "hellinger":
        roots = [(x - y, math.sqrt(x) + math.sqrt(y)) for x, y in pairs]
        return math.fsum((difference / both) ** 2 for difference, both in roots) / 2
    if name == "js":
        middle = [((x, (x + y) / 2), (y, (x + y) / 2)) for x, y in pairs]
        return (_kl([m[0] for m in middle]) + _kl([m[1] for m in middle])) / 2
    if name == "max":
        return max(math.log(x) - math.log(y) if y > 0 else math.inf for x, y in pairs if x > 0)
    raise NotImplementedError(name)


def _log_ratio(x: float, y: float) -> float:
    """log(x/y), without loss of digits for neighbours."""
    near = abs(x - y) <= y / 2
    return math.log1p((x - y) / y) if near else math.log(x) - math.log(y)


def _kl(pairs: list[tuple[float, float]]) -> float:
    if any(x > 0 and y == 0 for x, y in pairs):
        return math.inf
    # h log(h/q) - (h - q) is free of cancellation between tokens.
    return math.fsum(x * _log_ratio(x, y) - (x - y) if x > 0 else y for x, y in pairs)


def _alpha(a: float, pairs: list[tuple[float, float]]) -> float:
    """Sum of (h^a q^(1-a) - q - a (h - q)) / (a (a-1))."""
    total = []
    for x, y in pairs:
        if (x == 0 and a < 0) or (y == 0 and a > 1):
            return math.inf
        if x == 0 or y == 0:
            total.append(-y - a * (x - y))
            continue
        if abs(x - y) <= y / 2:
            total.append(y * math.expm1(a * _log_ratio(x, y)) - a * (x - y))
            continue
        power = a * math.log(x) + (1 - a) * math.log(y)
        if power > 700:
            return math.inf
        total.append(math.exp(power) - y - a * (x - y))
    return math.fsum(total) / (a * (a - 1))


def bisect(within: Callable[[float], bool], low: float, high: float, steps: int = 200) -> float:
    """The largest x in [low, high] with `within(x)`, which holds at low and once false stays so."""
    if within(high):
        return high
    for _ in range(steps):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


def boost(q: float, rule: cr.Cactus) -> float:
    """Theorem 2 of the Cactus paper by bisection; the published and the closed form by formula."""
    delta, room = rule.delta, 1 - q
    if rule.solver == "taylor":
        return min(1.0, q + math.sqrt(2 * delta * q * room))
    if rule.solver == "closed":
        return min(1.0, q + math.sqrt((math.exp(delta) - 1) * q * room))

    def within(x: float) -> bool:
        return divergence(rule.divergence, [q + x, room - x], [q, room]) <= delta

    # First the scale of x, then x itself: x may be smaller than q by any factor.
    if room == 0 or delta == 0:
        return q
    exponent = bisect(lambda e: within(room * 2.0**e), -1080.0, 0.0)
    return min(1.0, q + room * 2.0**exponent)


def _clip(p: Row, q: Row, a: float) -> Row:
    """Clip(p, b q, a q) with b in [0, 1] such that the masses balance."""
    top = [min(x, a * y) for x, y in zip(p, q, strict=True)]
    missing = 1 - math.fsum(top)

    def within(b: float) -> bool:
        return math.fsum(max(b * y - x, 0.0) for x, y in zip(top, q, strict=True)) <= missing

    b = bisect(within, 0.0, 1.0)
    return [max(x, b * y) for x, y in zip(top, q, strict=True)]


def _largest_ratio(p: Row, q: Row) -> float:
    return max([x / y for x, y in zip(p, q, strict=True) if y > 0] + [1.0])


def mentored(p: Row, q: Row, rule: cr.Mentored) -> Row:
    """The member of the clip family with the largest a within the budget."""

    def within(s: float) -> bool:
        return divergence(rule.divergence, _clip(p, q, 1 + s), q) <= rule.delta + 1e-15

    if rule.delta == 0:
        return list(q)
    return _clip(p, q, 1 + bisect(within, 0.0, _largest_ratio(p, q) - 1))


def band(p: Row, q: Row, width: float) -> Row:
    """The member of the clip family with a/b = e^width, or with nothing clipped from above."""

    def shortage(b: float) -> float:
        a = b * math.exp(width)
        low = math.fsum(max(b * y - x, 0.0) for x, y in zip(p, q, strict=True))
        return low - math.fsum(max(x - a * y, 0.0) for x, y in zip(p, q, strict=True))

    b = bisect(lambda b: shortage(b) <= 0, 0.0, 1.0)
    a = max(b * math.exp(width), 1.0)
    return _clip(p, q, min(a, _largest_ratio(p, q)))
