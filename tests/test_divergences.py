"""Divergences: full form, two-point form and generator against the textbook sums at 50 digits."""

from __future__ import annotations

import math

import judge
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from mpmath import mp, mpf

import cactus_rules as cr
from cactus_rules import divergences
from cactus_rules._arrays import numpy_namespace

RECORDS = [
    *divergences.BY_NAME.values(),
    *(divergences.Alpha(order) for order in (-2.0, 0.5, 1.5, 3.0)),
]
GENERATED = [record for record in RECORDS if record.name != "max"]


def _id(record: divergences.Divergence) -> str:
    return f"{record.name}{getattr(record, 'order', '')}"


def _judged(record: divergences.Divergence, h: np.ndarray, q: np.ndarray) -> mpf:
    return judge.full(record.name, h.tolist(), q.tolist(), getattr(record, "order", None))


def _tolerance(record: divergences.Divergence, h: np.ndarray, q: np.ndarray) -> float:
    """A few ulps of each of the terms that cancel: q |t| f'-like ones for every token."""
    order = getattr(record, "order", 0.5)
    steep = 1 + abs(order) * 40 + 1 / abs(order * (order - 1))
    return 8 * steep * tolerances.EPS * float(np.abs(h - q).sum() + 1e-300)


@given(strategies.exact_pairs(), strategies.DIVERGENCES)
def test_full_form_is_the_textbook_sum(
    pair: strategies.Pair, record: divergences.Divergence
) -> None:
    h, q = pair
    expected = _judged(record, h, q)
    value = float(record.between(h, q))
    if mp.isinf(expected):
        assert value == math.inf
        return
    # The judge itself has 50 digits of sums of order 1.
    bound = _tolerance(record, h, q) * (1 + 64 * float(expected)) + 1e-48
    assert abs(value - expected) <= bound + 1e-13 * abs(float(expected))


@given(strategies.exact_pairs(2, 2), strategies.DIVERGENCES)
def test_two_point_form_is_the_full_form_of_two_tokens(
    pair: strategies.Pair, record: divergences.Divergence
) -> None:
    h, q = pair
    assert record.two_point(h[0], q[0]) == record.between(h, q)


@pytest.mark.parametrize("record", GENERATED, ids=_id)
def test_full_form_is_the_sum_over_the_generator(record: divergences.Divergence) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        h, q = rng.dirichlet(np.ones(5), size=2)
        terms, _ = record.generator(h / q - 1, numpy_namespace)
        assert float(record.between(h, q)) == pytest.approx(float((q * terms).sum()), rel=1e-12)


@pytest.mark.parametrize("record", GENERATED, ids=_id)
def test_generator_is_convex_with_its_minimum_0_at_ratio_1(record: divergences.Divergence) -> None:
    t = np.concatenate([np.linspace(-0.99, 0, 100), np.geomspace(1e-6, 1e6, 100)])
    value, slope = record.generator(t, numpy_namespace)
    assert np.all(value >= 0)
    assert np.all(np.diff(slope) >= -1e-15)
    at_one, slope_at_one = record.generator(np.float64(0.0), numpy_namespace)
    assert at_one == slope_at_one == 0


@pytest.mark.parametrize("record", GENERATED, ids=_id)
def test_generator_returns_its_own_derivative(record: divergences.Divergence) -> None:
    for t in (-0.9, -0.3, 0.2, 1.0, 7.0):
        step = 1e-5
        up = record.generator(np.float64(t + step), numpy_namespace)[0]
        down = record.generator(np.float64(t - step), numpy_namespace)[0]
        slope = record.generator(np.float64(t), numpy_namespace)[1]
        assert slope == pytest.approx((up - down) / (2 * step), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("record", GENERATED, ids=_id)
def test_limits_of_the_generator_are_its_limits(record: divergences.Divergence) -> None:
    near_zero = float(record.generator(np.float64(-1 + 2.0**-53), numpy_namespace)[0])
    far = float(record.generator(np.float64(1e12), numpy_namespace)[0]) / 1e12
    if math.isinf(record.at_zero):
        assert near_zero > 30
    else:
        assert near_zero == pytest.approx(record.at_zero, rel=1e-6)
    if math.isinf(record.at_infinity):
        assert far > 20
    else:
        assert far == pytest.approx(record.at_infinity, rel=1e-5)


@given(strategies.pairs(), strategies.DIVERGENCES)
def test_a_divergence_is_0_between_equal_rows_and_never_negative(
    pair: strategies.Pair, record: divergences.Divergence
) -> None:
    p, q = pair
    assert record.between(q, q) == 0
    # Rows are off 1 by rounding, which the max-divergence sees, and cancelling terms by theirs.
    assert record.between(p, q) >= -_tolerance(record, p, q) - 8 * tolerances.EPS


@given(strategies.exact_pairs())
def test_alpha_family_contains_the_named_divergences(pair: strategies.Pair) -> None:
    h, q = pair
    for order, name, factor in ((2.0, "chi2", 2), (0.5, "hellinger", 0.25), (-1.0, "neyman", 2)):
        alpha = factor * divergences.Alpha(order).between(h, q)
        named = divergences.get(name).between(h, q)
        np.testing.assert_allclose(alpha, named, rtol=1e-12, atol=1e-15)


def test_alpha_family_reaches_both_kl_divergences_in_the_limit() -> None:
    h, q = np.array([0.2, 0.3, 0.5]), np.array([0.5, 0.25, 0.25])
    near = 1e-7
    kl, reverse = (divergences.get(name).between(h, q) for name in ("kl", "reverse_kl"))
    assert divergences.Alpha(1 + near).between(h, q) == pytest.approx(kl, rel=1e-5)
    assert divergences.Alpha(near).between(h, q) == pytest.approx(reverse, rel=1e-5)


@pytest.mark.parametrize("order", [0.0, 1.0, math.inf, math.nan])
def test_alpha_refuses_orders_without_a_formula(order: float) -> None:
    with pytest.raises(ValueError, match=r"order must be finite and not 0 or 1, got .*'kl'"):
        divergences.Alpha(order)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'kl', 'reverse_kl'.*Alpha\(0\.5\); got 'kullback'"):
        divergences.get("kullback")
    assert divergences.get("kl") is divergences.BY_NAME["kl"]


def test_max_divergence_has_no_generator() -> None:
    with pytest.raises(TypeError, match="not an f-divergence"):
        divergences.MaxDivergence().generator(np.float64(1.0), numpy_namespace)


@pytest.mark.parametrize(
    ("name", "h", "q", "value"),
    [
        ("kl", [1.0, 0.0], [0.5, 0.5], math.log(2)),
        ("kl", [0.5, 0.5], [1.0, 0.0], math.inf),
        ("reverse_kl", [1.0, 0.0], [0.5, 0.5], math.inf),
        ("reverse_kl", [0.5, 0.5], [1.0, 0.0], math.log(2)),
        ("tv", [1.0, 0.0], [0.0, 1.0], 1.0),
        ("hellinger", [1.0, 0.0], [0.0, 1.0], 1.0),
        ("js", [1.0, 0.0], [0.0, 1.0], math.log(2)),
        ("max", [1.0, 0.0], [0.25, 0.75], math.log(4)),
        ("max", [0.5, 0.5], [1.0, 0.0], math.inf),
        ("chi2", [1.0, 0.0], [0.5, 0.5], 1.0),
        ("neyman", [1.0, 0.0], [0.5, 0.5], math.inf),
        ("kl", [1.0, 0.0], [5e-324, 1.0], 1074 * math.log(2)),
        ("js", [1.0, 0.0], [5e-324, 1.0], math.log(2)),
        ("hellinger", [1.0, 0.0], [5e-324, 1.0], 1.0),
        ("neyman", [5e-324, 1.0], [1.0, 0.0], math.inf),
    ],
)
def test_known_values(name: str, h: list[float], q: list[float], value: float) -> None:
    got = cr.divergences.get(name).between(np.array(h), np.array(q))
    assert got == pytest.approx(value, rel=1e-15)
