"""The scalar solver: what it promises, judged at 50 digits with zero slack."""

from __future__ import annotations

import math

import judge
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import example, given
from hypothesis import strategies as st
from kinds import Kind
from mpmath import mpf
from scipy.optimize import brentq

import cactus_rules as cr
from cactus_rules.divergences import Divergence

SOLVERS = [("kl", "exact"), ("kl", "closed"), ("kl", "taylor")]


def _cost(record: Divergence, g: float, q: float) -> mpf:
    return judge.two_point(record.name, g, q, getattr(record, "order", None))


@strategies.times(8)
@given(strategies.PROBABILITIES, strategies.BUDGETS, strategies.DIVERGENCES)
@example(0.5, 50.0, cr.divergences.KL())
@example(1e-300, 50.0, cr.divergences.KL())
@example(1 - 2.0**-53, 1e-12, cr.divergences.KL())
@example(math.exp(-1.0), 1.0, cr.divergences.KL())
@example(2.37e-97, 0.193, cr.divergences.Alpha(7.0))
@example(0.2416, 1.6e-10, cr.divergences.Alpha(1.01))
@example(0.610677111640983, 1.9460229920197754, cr.divergences.SquaredHellinger())
def test_exact_solver_stays_within_delta_and_takes_the_largest_cap(
    q: float, delta: float, record: Divergence
) -> None:
    cap = float(cr.boost(q, delta, record))
    assert q <= cap <= 1
    assert _cost(record, cap, q) <= mpf(delta)
    if cap < 1:
        order = getattr(record, "order", None)
        above = cap * (1 + tolerances.boost_ulps(order) * tolerances.EPS)
        assert above >= 1 or _cost(record, above, q) > mpf(delta)


@strategies.times(4)
@given(strategies.PROBABILITIES, strategies.BUDGETS)
@example(math.exp(-1.0), 1.0)
@example(1 - 2.0**-53, 1e-12)
def test_closed_solver_stays_within_delta_and_below_the_exact_one(q: float, delta: float) -> None:
    cap = float(cr.boost(q, delta, solver="closed"))
    # Where both are a hair below 1, the exact one has given away a few ulps more.
    assert q <= cap <= float(cr.boost(q, delta)) * (1 + 4 * tolerances.EPS)
    assert judge.two_point("kl", cap, q) <= mpf(delta)


@strategies.times(4)
@given(strategies.PROBABILITIES, strategies.BUDGETS)
def test_taylor_solver_stays_within_log_1_plus_2_delta(q: float, delta: float) -> None:
    cap = float(cr.boost(q, delta, solver="taylor"))
    assert q <= cap <= 1
    cost = judge.two_point("kl", cap, q)
    assert cost <= judge.log1p(2 * delta)
    if cap <= 0.5:
        assert cost <= mpf(delta)


@pytest.mark.parametrize("delta", [0.01, 0.1, 0.5, 1.0, 1.25])
def test_taylor_solver_exceeds_delta_up_to_its_bound(delta: float) -> None:
    q = 1 / (1 + 2 * delta)
    cost = judge.two_point("kl", float(cr.boost(q, delta, solver="taylor")), q)
    assert cost > mpf(delta)
    assert float(cost) == pytest.approx(math.log1p(2 * delta), rel=1e-12)


def test_taylor_solver_at_a_tenth_costs_182_percent_of_the_budget() -> None:
    cap = float(cr.boost(1 / 1.2, 0.1, solver="taylor"))
    assert float(judge.two_point("kl", cap, 1 / 1.2)) / 0.1 == pytest.approx(1.82, abs=0.005)


@given(
    st.lists(strategies.PROBABILITIES, min_size=2, max_size=6),
    strategies.BUDGETS,
    strategies.DIVERGENCES,
)
def test_exact_cap_rises_with_q(qs: list[float], delta: float, record: Divergence) -> None:
    caps = cr.boost(np.sort(qs), delta, record)
    _assert_rising(caps, record)


@given(
    strategies.PROBABILITIES,
    st.lists(strategies.BUDGETS, min_size=2, max_size=6),
    strategies.DIVERGENCES,
)
def test_exact_cap_rises_with_delta(q: float, deltas: list[float], record: Divergence) -> None:
    _assert_rising(cr.boost(q, np.sort(deltas), record), record)


def _assert_rising(caps: np.ndarray, record: Divergence) -> None:
    """Rising but for the ulps that the solver gives away."""
    ulps = tolerances.boost_ulps(getattr(record, "order", None))
    assert np.all(caps[1:] >= caps[:-1] * (1 - ulps * tolerances.EPS))


@given(strategies.PROBABILITIES, strategies.DIVERGENCES)
def test_a_budget_of_0_leaves_q(q: float, record: Divergence) -> None:
    assert cr.boost(q, 0.0, record) == q
    np.testing.assert_array_equal(cr.boost(np.array([0.0, q, 1.0]), 0.0, record), [0, q, 1])


@pytest.mark.parametrize(("divergence", "solver"), SOLVERS)
def test_edges(divergence: str, solver: str) -> None:
    q = np.array([0.0, 5e-324, 0.5, 1 - 2.0**-53, 1.0, 1.0000001])
    for delta in (0.0, 1e-320, 1e-13, 0.1, 700.0, 800.0, 1e300, math.inf):
        cap = cr.boost(q, delta, divergence, solver)
        assert cap[0] == 0
        assert np.all((cap >= np.minimum(q, 1)) & (cap <= 1))
        assert cap[4] == cap[5] == 1
    np.testing.assert_array_equal(cap, [0, 1, 1, 1, 1, 1])


@given(strategies.DIVERGENCES)
def test_an_excluded_token_is_never_raised(record: Divergence) -> None:
    for delta in (0.0, 1e-9, 1.0, 50.0, math.inf):
        assert cr.boost(0.0, delta, record) == 0
        assert cr.boost(np.zeros(1), delta, record)[0] == 0


@pytest.mark.parametrize("name", ["kl", "js", "reverse_kl"])
@pytest.mark.parametrize("q", [1e-6, 1e-3, 0.2, 0.9])
@pytest.mark.parametrize("delta", [1e-3, 0.1, 0.3])
def test_roots_are_those_of_brentq(name: str, q: float, delta: float) -> None:
    def excess(g: float) -> float:
        return float(judge.two_point(name, g, q)) - delta

    top = 1 - 1e-15
    expected = brentq(excess, q, top, xtol=1e-18, rtol=1e-14) if excess(top) > 0 else 1.0
    # The search itself stops at 1e-14.
    assert float(cr.boost(q, delta, name)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("tv", lambda q, d: q + d),
        ("chi2", lambda q, d: q + math.sqrt(d * q * (1 - q))),
        (
            "neyman",
            lambda q, d: (2 * q + d + math.sqrt(d * d + 4 * d * q * (1 - q))) / (2 * (1 + d)),
        ),
        (
            "hellinger",
            lambda q, d: math.sin(min(math.pi / 2, math.asin(q**0.5) + math.acos(1 - d))) ** 2,
        ),
        ("max", lambda q, d: math.exp(d) * q),
    ],
)
def test_closed_forms(name: str, form: object) -> None:
    for q in (1e-3, 0.2, 0.7):
        for delta in (0.01, 0.1, 0.5):
            expected = min(1.0, form(q, delta))  # type: ignore[operator]
            assert float(cr.boost(q, delta, name)) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("q", "ratio"), [(1e-6, 67), (1e-4, 10.9), (0.01, 2.4)])
def test_exact_is_much_bolder_than_taylor_in_the_tail(q: float, ratio: float) -> None:
    exact, taylor = (float(cr.boost(q, 1.0, "kl", s)) for s in ("exact", "taylor"))
    assert exact / taylor == pytest.approx(ratio, rel=0.02)


@given(
    st.lists(strategies.PROBABILITIES, min_size=1, max_size=9),
    strategies.BUDGETS,
    strategies.DIVERGENCES,
)
def test_scalars_vectors_and_broadcasts_give_the_same_bits(
    qs: list[float], delta: float, record: Divergence
) -> None:
    expected = [float(cr.boost(q, delta, record)) for q in qs]
    np.testing.assert_array_equal(cr.boost(np.array(qs), delta, record), expected)
    table = cr.boost(np.array(qs)[:, None], np.array([delta, 0.3]), record)
    assert table.shape == (len(qs), 2)
    np.testing.assert_array_equal(table[:, 0], expected)


def test_every_array_kind_agrees_and_keeps_its_kind(kind: Kind) -> None:
    q = np.array([0.0, 1e-300, 1e-9, 0.1, 0.5, 0.999, 1.0])
    for record in cr.divergences.BY_NAME.values():
        cap = cr.boost(kind.make(q), 0.3, record)
        assert type(cap) is type(kind.make(q)) or kind.is_numpy
        expected = cr.boost(q, 0.3, record)
        np.testing.assert_allclose(kind.back(cap), expected, rtol=64 * tolerances.EPS)
        per_request = cr.boost(kind.make(q), kind.make(np.full(7, 0.3)), record)
        np.testing.assert_array_equal(kind.back(per_request), kind.back(cap))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_solve_runs_in_float64(kind: Kind, dtype: str) -> None:
    if dtype == "float16" and kind.name == "array-api-strict":
        pytest.skip("array-api-strict has no float16")
    q = np.array([0.1, 0.5], dtype=dtype)
    cap = kind.back(cr.boost(kind.make(q), 0.1))
    assert cap.dtype == np.float64
    expected = cr.boost(q.astype(np.float64), 0.1)
    np.testing.assert_allclose(cap, expected, rtol=64 * tolerances.EPS)


def test_errors_name_the_solver_and_the_divergence() -> None:
    with pytest.raises(ValueError, match="solver must be 'exact', 'taylor' or 'closed', got 'x'"):
        cr.boost(0.5, 0.1, solver="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'taylor' is a formula for divergence='kl', got 'tv'"):
        cr.boost(0.5, 0.1, "tv", "taylor")
