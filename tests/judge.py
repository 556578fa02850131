"""Divergences at 50 digits, from their textbook definitions: the judge of every promise.

Nothing here comes from the library, and arguments are taken at their exact float64 values, so that
a promise `<= delta` is checked with zero slack.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mpmath
from mpmath import mp, mpf

Real = Any
"""A float or an mpmath number."""

DIGITS = 50


def _log_ratio(h: mpf, q: mpf) -> mpf:
    """h log(h/q), with 0 log 0 = 0."""
    if h == 0:
        return mpf(0)
    return mp.inf if q == 0 else h * mp.log(h / q)


def _kl(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    return mp.fsum(_log_ratio(x, y) for x, y in zip(h, q, strict=True))


def _tv(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    return mp.fsum(abs(x - y) for x, y in zip(h, q, strict=True)) / 2


def _chi2(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    pairs = [(x, y) for x, y in zip(h, q, strict=True) if x != y]
    return mp.fsum((x - y) ** 2 / y if y > 0 else mp.inf for x, y in pairs)


def _hellinger(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    return mp.fsum((mp.sqrt(x) - mp.sqrt(y)) ** 2 for x, y in zip(h, q, strict=True)) / 2


def _js(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    middle = [(x + y) / 2 for x, y in zip(h, q, strict=True)]
    return (_kl(h, middle) + _kl(q, middle)) / 2


def _max(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
    return max(
        mp.log(x / y) if y > 0 else mp.inf for x, y in zip(h, q, strict=True) if x > 0
    )  # fmt: skip


def _alpha(order: float) -> Callable[[Sequence[mpf], Sequence[mpf]], mpf]:
    a = mpf(order)

    def power_sum(h: Sequence[mpf], q: Sequence[mpf]) -> mpf:
        terms = []
        for x, y in zip(h, q, strict=True):
            if x == 0 and y == 0:
                continue
            if (x == 0 and a < 0) or (y == 0 and a > 1):
                return mp.inf
            terms.append(mpf(0) if x == 0 or y == 0 else x**a * y ** (1 - a))
        return (mp.fsum(terms) - 1) / (a * (a - 1))

    return power_sum


_BY_NAME: dict[str, Callable[[Sequence[mpf], Sequence[mpf]], mpf]] = {
    "kl": _kl,
    "reverse_kl": lambda h, q: _kl(q, h),
    "tv": _tv,
    "chi2": _chi2,
    "neyman": lambda h, q: _chi2(q, h),
    "hellinger": _hellinger,
    "js": _js,
    "max": _max,
}

NAMES = tuple(_BY_NAME)


def full(name: str, h: Sequence[Real], q: Sequence[Real], order: float | None = None) -> mpf:
    """D(h, q) of the named divergence ("alpha" takes its order), at 50 digits."""
    with mp.workdps(DIGITS):
        between = _alpha(order) if order is not None else _BY_NAME[name]
        return between([mpf(x) for x in h], [mpf(x) for x in q])


def two_point(name: str, g: Real, q: Real, order: float | None = None) -> mpf:
    """D(Bernoulli(g), Bernoulli(q)) at 50 digits; 1 - g and 1 - q are not rounded."""
    with mp.workdps(DIGITS + 320):  # 1 - 1e-300 needs its digits before the cut to 50
        g, q = mpf(g), mpf(q)
        rest_g, rest_q = 1 - g, 1 - q
    return full(name, [g, rest_g], [q, rest_q], order)


def output(
    p: Sequence[float], q: Sequence[float], cap: Sequence[float], scale: Sequence[float]
) -> list[mpf]:
    """The output law of a rule given by its float64 numbers, one pair per token, at 50 digits."""
    with mp.workdps(DIGITS):
        p, q, cap = ([mpf(x) for x in row] for row in (p, q, cap))
        law = [min(x, c) for x, c in zip(p, cap, strict=True)]
        for x, c, s in zip(p, cap, scale, strict=True):
            if x <= c:
                continue
            surplus = [max(mpf(s) * y - z, mpf(0)) for y, z in zip(q, p, strict=True)]
            total = mp.fsum(surplus)
            law = [y + (x - c) * z / total for y, z in zip(law, surplus, strict=True)]
        return law


def log1p(x: float) -> mpf:
    """log(1 + x) at 50 digits."""
    with mp.workdps(DIGITS):
        return mpmath.log(1 + mpf(x))
