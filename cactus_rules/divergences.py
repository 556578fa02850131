r"""Divergences D(h, q) between a law `h` and the target `q`, in nats, one small record each.

An f-divergence is ``D_f(h||q) = sum_i q_i f(h_i / q_i)`` with `f` convex and f(1) = 0. Every record
uses the generator that also has f'(1) = 0, written as a function of ``t = h_i/q_i - 1`` so that
nearly equal laws lose no digits; the choice changes no divergence of normalised laws.

What each record knows: the `generator` and its derivative, the full form `between`, the two-point
form `two_point` (Bernoulli(g) against Bernoulli(q), which is what a boost of one token costs), and,
where there is one, the closed form of the largest boost (`closed_boost`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from cactus_rules._arrays import Array, Namespace, float64, namespace, quiet


@dataclass(frozen=True)
class Divergence(ABC):
    """A divergence from the target, `D(h, q)`; 0 iff h = q, in nats where it has a unit."""

    name: ClassVar[str]
    at_zero: ClassVar[float] = math.inf
    """f(0): the cost of a token that h excludes, per unit of target probability."""
    at_infinity: ClassVar[float] = math.inf
    """lim f(r)/r: the cost of a token that q excludes, per unit of h."""

    @property
    def dual(self) -> Divergence | None:
        """The record of D*(q, h) = D(h, q), for those infinite where h excludes a token."""
        return None

    @abstractmethod
    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """f and its derivative at the ratio 1 + t, for finite t >= -1; both 0 at t = 0."""

    def perspective(self, h: Array, q: Array, xp: Namespace) -> Array:
        """The elementwise terms q f(h/q), limits included: q = 0 and h = 0 are ordinary input."""
        if self.dual is not None:
            return self.dual.perspective(q, h, xp)
        inside = q > 0
        t = (h - q) / xp.where(inside, q, 1.0 + 0 * q)
        # A ratio h/q below half an ulp costs what 0 costs, to the last digit: f(0) is finite here.
        value, _ = self.generator(xp.where(t > -1, t, 0 * t), xp)
        value = xp.where(t > -1, q * value, q * self.at_zero)
        outside = xp.where(h > 0, h * self.at_infinity, 0 * h)
        # A ratio that overflows costs what a token outside q costs.
        return xp.where(inside & (t < math.inf), value, outside)

    def between(self, h: Array, q: Array) -> Array:
        """D(h||q) over the last axis: `h` and `q (..., V)` give `(...)` in float64."""
        xp = namespace(h, q)
        with quiet(xp):
            return xp.sum(self.perspective(float64(xp, h), float64(xp, q), xp), axis=-1)

    def two_point(self, g: Array, q: Array) -> Array:
        """D(Bernoulli(g) || Bernoulli(q)), elementwise: the cost of moving a token from q to g."""
        xp = namespace(g, q)
        g, q = xp.asarray(g, dtype=xp.float64), xp.asarray(q, dtype=xp.float64)
        with quiet(xp):
            return self.perspective(g, q, xp) + self.perspective(1 - g, 1 - q, xp)

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array | None:
        """The largest x with two_point(q + x, q) <= delta, or None where only a root defines it."""
        return None


@dataclass(frozen=True)
class KL(Divergence):
    """KL(h||q) = sum h log(h/q): the divergence of the Cactus paper."""

    name = "kl"
    at_zero = 1.0

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """(1+t) log(1+t) - t, and log(1+t)."""
        log = xp.log1p(t)
        return (1 + t) * log - t, log

    def perspective(self, h: Array, q: Array, xp: Namespace) -> Array:
        """As in the base class, by logarithms where h/q would overflow."""
        far = (q > 0) & (h > q * 1e100)
        logs = h * (xp.log(xp.where(far, h, 1.0)) - xp.log(xp.where(far, q, 1.0))) - h + q
        return xp.where(far, logs, super().perspective(xp.where(far, q, h), q, xp))


@dataclass(frozen=True)
class ReverseKL(Divergence):
    """KL(q||h) = sum q log(q/h): the divergence of mentored decoding. Infinite where h excludes."""

    name = "reverse_kl"
    at_infinity = 1.0

    @property
    def dual(self) -> Divergence:
        """KL."""
        return KL()

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """t - log(1+t), and t/(1+t)."""
        return t - xp.log1p(t), t / (1 + t)


@dataclass(frozen=True)
class TotalVariation(Divergence):
    """TV(h, q) = 1/2 sum |h - q|."""

    name = "tv"
    at_zero = 0.5
    at_infinity = 0.5

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """|t|/2, and sign(t)/2."""
        return abs(t) / 2, xp.sign(t) / 2

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array:
        """x = delta."""
        return delta + 0 * q


@dataclass(frozen=True)
class PearsonChi2(Divergence):
    """chi2(h||q) = sum (h - q)^2 / q; the Taylor rule of the paper is exact for it at 2 delta."""

    name = "chi2"
    at_zero = 1.0

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """t^2, and 2t."""
        return t * t, 2 * t

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array:
        """x = sqrt(delta q (1-q))."""
        return xp.sqrt(delta) * xp.sqrt(q * (1 - q))


@dataclass(frozen=True)
class NeymanChi2(Divergence):
    """chi2(q||h) = sum (h - q)^2 / h."""

    name = "neyman"
    at_infinity = 1.0

    @property
    def dual(self) -> Divergence:
        """Pearson's chi-square."""
        return PearsonChi2()

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """t^2/(1+t), and 1 - 1/(1+t)^2."""
        r = t / (1 + t)
        return t * r, r * (1 + 1 / (1 + t))

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array:
        """The positive root of x^2 = delta (q + x) (1 - q - x)."""
        # Divided by delta where it is large, so that delta = 1e300 does not overflow.
        root = xp.sqrt(1 + 4 * q * (1 - q) / delta)
        return (1 - 2 * q + root) / (2 * (1 + 1 / delta))


@dataclass(frozen=True)
class SquaredHellinger(Divergence):
    """1 - sum sqrt(h q), the squared Hellinger distance (1 minus the Bhattacharyya coefficient)."""

    name = "hellinger"
    at_zero = 0.5
    at_infinity = 0.5

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """(sqrt(1+t) - 1)^2 / 2, and (1 - 1/sqrt(1+t)) / 2."""
        root = xp.sqrt(1 + t)
        r = t / (root + 1)
        return r * r / 2, r / root / 2

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array:
        """sin^2(A+B) - sin^2(A), sin^2(A) = q, cos(B) = 1 - delta, without cancellation."""
        a = xp.atan2(xp.sqrt(q), xp.sqrt(1 - q))
        b = 2 * xp.asin(xp.sqrt(xp.minimum(delta, 1 + 0 * delta) / 2))
        x = xp.sin(b) * xp.sin(2 * a + b)
        x = xp.where(a + b >= math.pi / 2, 1 - q, x)
        # Past the cost of g = 1, 1 - sqrt(q), any x beyond 1 - q will do.
        return xp.where((1 - q) / (1 + xp.sqrt(q)) < delta * (1 - 2.0**-49), 2.0 + 0 * x, x)


@dataclass(frozen=True)
class JensenShannon(Divergence):
    """JS(h, q) = KL(h||m)/2 + KL(q||m)/2 with m = (h+q)/2; at most log 2."""

    name = "js"
    at_zero = math.log(2) / 2
    at_infinity = math.log(2) / 2

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """[(1+t) log(2(1+t)/(2+t)) - log(1+t/2)] / 2, and log(2(1+t)/(2+t)) / 2."""
        log = xp.log1p(t / (2 + t))
        return ((1 + t) * log - xp.log1p(t / 2)) / 2, log / 2


@dataclass(frozen=True)
class Alpha(Divergence):
    """Alpha divergence (Cressie-Read): sum q ((h/q)^a - 1) / (a (a-1)), for an order a not 0 or 1.

    Order 2 is chi2/2, 1/2 is 4 times the squared Hellinger distance, -1 is Neyman's chi2/2; the
    limits 1 and 0 are `KL` and `ReverseKL`, which have their own records.
    """

    order: float = 2.0
    name = "alpha"

    def __post_init__(self) -> None:
        """Refuse the two orders at which the formula is 0/0."""
        if not math.isfinite(self.order) or self.order in (0.0, 1.0):
            raise ValueError(
                f"order must be finite and not 0 or 1, got {self.order!r}: "
                "use divergence='kl' for order 1 and 'reverse_kl' for order 0"
            )
        a = self.order
        object.__setattr__(self, "at_zero", 1 / a if a > 0 else math.inf)
        object.__setattr__(self, "at_infinity", 1 / (1 - a) if a < 1 else math.inf)

    @property
    def dual(self) -> Divergence | None:
        """The alpha divergence of order 1 - a, where a < 0."""
        return Alpha(1 - self.order) if self.order < 0 else None

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """((1+t)^a - 1 - a t) / (a (a-1)), and ((1+t)^(a-1) - 1) / (a-1)."""
        a, log = self.order, xp.log1p(t)
        return (xp.expm1(a * log) - a * t) / (a * (a - 1)), xp.expm1((a - 1) * log) / (a - 1)


@dataclass(frozen=True)
class MaxDivergence(Divergence):
    """log max_i h_i/q_i (Renyi divergence of order infinity). Not an f-divergence: no generator."""

    name = "max"

    def generator(self, t: Array, xp: Namespace) -> tuple[Array, Array]:
        """There is none."""
        raise TypeError("the max-divergence is not an f-divergence and has no generator")

    def perspective(self, h: Array, q: Array, xp: Namespace) -> Array:
        """The elementwise log ratios log(h/q), of which the divergence is the largest."""
        logs = xp.log1p((h - q) / xp.where(q > 0, q, 1.0 + 0 * q))
        return xp.where(h > 0, xp.where(q > 0, logs, math.inf), -math.inf)

    def between(self, h: Array, q: Array) -> Array:
        """Max over tokens of log(h/q), `(..., V)` to `(...)`."""
        xp = namespace(h, q)
        with quiet(xp):
            return xp.max(self.perspective(float64(xp, h), float64(xp, q), xp), axis=-1)

    def two_point(self, g: Array, q: Array) -> Array:
        """Max of log(g/q) and log((1-g)/(1-q))."""
        xp = namespace(g, q)
        g, q = xp.asarray(g, dtype=xp.float64), xp.asarray(q, dtype=xp.float64)
        with quiet(xp):
            return xp.maximum(self.perspective(g, q, xp), self.perspective(1 - g, 1 - q, xp))

    def closed_boost(self, q: Array, delta: Array, xp: Namespace) -> Array:
        """x = q (e^delta - 1)."""
        return q * xp.expm1(xp.minimum(delta, 700 + 0 * delta))


BY_NAME: dict[str, Divergence] = {
    record.name: record
    for record in (
        KL(),
        ReverseKL(),
        TotalVariation(),
        PearsonChi2(),
        NeymanChi2(),
        SquaredHellinger(),
        JensenShannon(),
        MaxDivergence(),
    )
}


def get(divergence: str | Divergence) -> Divergence:
    """The record for a name, or the record itself; ValueError that lists the names otherwise."""
    if isinstance(divergence, Divergence):
        return divergence
    try:
        return BY_NAME[divergence]
    except (KeyError, TypeError):
        names = ", ".join(repr(name) for name in BY_NAME)
        raise ValueError(
            f"divergence must be one of {names}, or a record such as "
            f"cactus_rules.divergences.Alpha(0.5); got {divergence!r}"
        ) from None
