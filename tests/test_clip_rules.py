"""Mentored and Band: the budget holds on the output law, zero slack; no rule accepts more."""

from __future__ import annotations

from unittest import mock

import judge
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind
from mpmath import mp, mpf
from scipy.optimize import minimize

import cactus_rules as cr
from cactus_rules import _clip, _ratio_order
from cactus_rules._arrays import numpy_namespace
from cactus_rules.divergences import Divergence

SHORT = st.sampled_from([_ratio_order._SHORT, 0])
"""Tokens up to which a row is one block: all that these tests have, or none."""

CONVEX = [r for r in cr.divergences.BY_NAME.values() if r.name not in ("tv", "max")]


def _exact_law(p: np.ndarray, q: np.ndarray, rule: cr.Rule) -> list[mpf]:
    """The output law at 50 digits of the float64 numbers that the rule returns."""
    tokens = np.flatnonzero(p > 0)
    a = cr.accept(np.tile(p, (len(tokens), 1)), q, tokens, rule=rule)
    cap, scale = np.zeros(len(p)), np.ones(len(p))
    cap[tokens], scale[tokens] = a.cap, a.scale
    return judge.output(p.tolist(), q.tolist(), cap.tolist(), scale.tolist())


@strategies.times(4)
@given(strategies.exact_pairs(), strategies.BUDGETS, strategies.DIVERGENCES, SHORT)
def test_output_law_of_mentored_stays_within_delta(
    pair: strategies.Pair, delta: float, record: Divergence, short: int
) -> None:
    p, q = pair
    with mock.patch.object(_ratio_order, "_SHORT", short):
        law = _exact_law(p, q, cr.Mentored(delta, record))
    spent = judge.full(record.name, law, q.tolist(), getattr(record, "order", None))
    # The judge's own sums of order 1 have 50 digits.
    assert spent <= mpf(delta) + mpf(10) ** (3 - judge.DIGITS)


@strategies.times(2)
@given(strategies.exact_pairs(), st.floats(1e-6, 3.0), strategies.DIVERGENCES, SHORT)
def test_mentored_spends_its_budget_or_keeps_the_draft(
    pair: strategies.Pair, delta: float, record: Divergence, short: int
) -> None:
    p, q = pair
    with mock.patch.object(_ratio_order, "_SHORT", short):
        audit = cr.audit(p, q, cr.Mentored(delta, record))
    most = float(p[q > 0].sum())
    if audit.acceptance_rate < most * (1 - 1e-9):
        spent = float(record.between(audit.law, q))
        assert spent == pytest.approx(delta, rel=1e-4)


@strategies.times(3)
@given(strategies.pairs(), strategies.RULES, st.booleans(), st.sampled_from(CONVEX))
def test_no_rule_accepts_more_than_mentored_at_its_divergence(
    pair: strategies.Pair, rule: cr.Rule, one_hot: bool, record: Divergence
) -> None:
    p, q = pair
    # Below 1e-300 no rule raises a token by a search; Ensemble and the like still do.
    q = np.where(q < 1e-300, 0.0, q)
    audit = cr.audit(p, q, rule, one_hot=one_hot)
    spent = float(record.between(audit.law, q))
    if not np.isfinite(spent):
        return
    best = cr.audit(p, q, cr.Mentored(spent, record)).acceptance_rate
    # Rounding of the law moves its divergence; in the budget that is worth its square root.
    slack = 1e-6 * (best - np.minimum(p, q).sum()) + 4 * np.sqrt(tolerances.law(len(p)))
    assert audit.acceptance_rate <= best + slack


@pytest.mark.parametrize("record", CONVEX, ids=lambda r: r.name)
@pytest.mark.parametrize("delta", [0.003, 0.1, 0.6])
def test_mentored_is_the_optimum_of_a_general_solver(record: Divergence, delta: float) -> None:
    rng = np.random.default_rng(3)
    arrived = 0
    for _ in range(3):
        p, q = strategies.distinct_pair(rng, 5)
        # Maximise sum t with t <= p, t <= h, h a law, D(h, q) <= delta, over (h, t).
        constraints = [
            {"type": "eq", "fun": lambda x: x[:5].sum() - 1},
            {"type": "ineq", "fun": lambda x, q=q: delta - float(record.between(x[:5], q))},
            {"type": "ineq", "fun": lambda x: x[:5] - x[5:]},
        ]
        start = np.concatenate([0.99 * q + 0.01 * p, np.minimum(p, 0.99 * q)])
        bounds = [(1e-9, 1)] * 5 + [(0, x) for x in p]
        found = minimize(
            lambda x: -x[5:].sum(),
            start,
            bounds=bounds,
            constraints=constraints,
            method="SLSQP",
            options={"maxiter": 100, "ftol": 1e-12},
        )
        rate = float(cr.audit(p, q, cr.Mentored(delta, record)).acceptance_rate)
        worst = min(np.min(c["fun"](found.x)) for c in constraints[1:])  # type: ignore[attr-defined]
        # What the solver's violation of the budget buys is worth at most its square root.
        assert -found.fun <= rate + 1e-7 + np.sqrt(max(-float(worst), 0.0))
        arrived += found.success
        if found.success:
            assert rate == pytest.approx(-found.fun, abs=1e-6)
    assert arrived > 0


@strategies.times(2)
@given(strategies.exact_pairs(), strategies.BUDGETS)
def test_with_the_max_divergence_mentored_accepts_what_lenience_accepts(
    pair: strategies.Pair, delta: float
) -> None:
    p, q = pair
    mentored = cr.audit(p, q, cr.Mentored(delta, "max")).acceptance_rate
    lenience = cr.audit(p, q, cr.Lenience(np.exp(delta))).acceptance_rate
    assert mentored == pytest.approx(lenience, rel=1e-12, abs=tolerances.law(len(p)))


@strategies.times(4)
@given(strategies.exact_pairs(), st.sampled_from([0.0, 1e-9, 0.01, 0.3, 1.0, 4.0, np.inf]), SHORT)
def test_band_is_a_clip_with_its_width_or_keeps_the_draft(
    pair: strategies.Pair, width: float, short: int
) -> None:
    p, q = pair
    with mock.patch.object(_ratio_order, "_SHORT", short):
        law = np.array([float(x) for x in _exact_law(p, q, cr.Band(width))])
    inside = q > 0
    p, q, law = p[inside], q[inside], law[inside]
    # Ends of the clip as far as entries with an absolute error can tell them.
    error = tolerances.law(len(law))
    low, high = float(((law + error) / q).min()), float(((law - error) / q).max())
    assert width == np.inf or high <= np.exp(width) * low
    between = (law - error > low * q) & (law + error < high * q)
    np.testing.assert_allclose(law[between], p[between], rtol=0, atol=error)
    if np.minimum(p, law).sum() < p.sum() - error:
        widest = float(((law + error) / q).max() / max(((law - error) / q).min(), 1e-300))
        assert widest >= np.exp(width) * (1 - 1e-6)


@pytest.mark.parametrize("rule", [cr.Mentored(0.1), cr.Mentored(0.2, "js"), cr.Band(0.5)], ids=repr)
def test_clip_rules_are_the_same_in_any_batch(kind: Kind, rule: cr.Rule) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(37, 0.3), size=(2, 12))
    token = np.argmax(p, axis=-1)
    whole = cr.accept(kind.make(p), kind.make(q), kind.make(token), rule=rule)
    for i in range(len(p)):
        one = cr.accept(kind.make(p[i]), kind.make(q[i]), kind.make(token[i]), rule=rule)
        assert kind.back(whole.cap)[i] == kind.back(one.cap)
        assert kind.back(whole.scale)[i] == kind.back(one.scale)


@pytest.mark.parametrize("width", [4097, 5000, 20_011])
@pytest.mark.parametrize("record", [None, *CONVEX], ids=lambda r: r.name if r else "none")
def test_sums_of_wide_rows_are_those_of_all_tokens(width: int, record: Divergence | None) -> None:
    rng = np.random.default_rng(width)
    p, q = np.round(rng.dirichlet(np.full(width, 0.3), size=2), 7)
    p, q = p / p.sum(), q / q.sum()
    q[:100], p[50:150] = 0.0, 0.0
    q[200:300] = p[200:300]
    with np.errstate(all="ignore"):
        rows = _clip._Family(p, q, numpy_namespace, record)
        p, q = p / p.sum(), q / q.sum()
        ratio = np.where(q > 0, p / q, np.inf)
        cost = np.zeros(width) if record is None else record.perspective(p, q, np)
        for a in (1.0, 1 + 1e-9, 1.3, 2.0, np.max(ratio[q > 0])):
            found = rows.clip(np.float64(a))
            h = np.where(q > 0, np.clip(p, found.b * q, a * q), 0.0)
            assert h.sum() == pytest.approx(1.0, abs=1e-14)
            below, above = ratio <= found.b, ratio > a
            sums = [q[below].sum(), q[above].sum(), cost[~below & ~above].sum()]
            expected = [found.low, found.high, found.between]
            np.testing.assert_allclose(sums, expected, rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("rule", [cr.Mentored(np.array([[0.0], [0.2]])), cr.Band(0.5)], ids=repr)
def test_rows_are_searched_in_parts(kind: Kind, rule: cr.Rule) -> None:
    if kind.name == "array-api-strict":
        pytest.skip("only what numpy can read is searched in parts")
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(4500, 0.3), size=(2, 2, 3))
    token = np.argmax(p, axis=-1)
    whole = cr.accept(kind.make(p), kind.make(q), kind.make(token), rule=rule)
    for part in (1, 4500, 10_000, 13_500):
        with mock.patch.object(_clip, "_PART", part):
            parts = cr.accept(kind.make(p), kind.make(q), kind.make(token), rule=rule)
        np.testing.assert_array_equal(kind.back(whole.cap), kind.back(parts.cap))
        np.testing.assert_array_equal(kind.back(whole.scale), kind.back(parts.scale))


@pytest.mark.parametrize("width", [300, 4500])
def test_rows_that_numpy_cannot_read_get_the_same_ends(kind: Kind, width: int) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(width, 0.3), size=(2, 3))
    q[1, :9], p[2, 5:50] = 0.0, 0.0
    p, q = (rows / rows.sum(axis=-1, keepdims=True) for rows in (p, q))
    token = np.argmax(np.minimum(p, q), axis=-1)
    for rule in (cr.Mentored(0.2), cr.Mentored(0.2, "reverse_kl"), cr.Band(0.5)):
        expected = cr.accept(p, q, token, rule=rule)
        with (
            mock.patch.object(_ratio_order, "_SHORT", 0),
            mock.patch.object(_clip, "_in_host_memory", return_value=False),
        ):
            found = cr.accept(kind.make(p), kind.make(q), kind.make(token), rule=rule)
        np.testing.assert_allclose(kind.back(found.cap), expected.cap, rtol=1e-10)
        np.testing.assert_allclose(kind.back(found.scale), expected.scale, rtol=1e-10)


_RATIOS = [0.0, 5e-324, 1e-310, 1.0, 1 + 2.0**-52, 1 + 2.0**-51, 1 + 2.0**-46, 1.5, 1e300, np.inf]


@given(st.lists(st.sampled_from([*_RATIOS, np.nan]), min_size=1, max_size=40))
def test_packed_keys_sort_as_ratios_do(ratios: list[float]) -> None:
    known = np.fmin(ratios, 2e300)
    expected = np.argsort(known, stable=True)
    np.testing.assert_array_equal(
        _ratio_order.order_of(np.array(ratios), numpy_namespace), expected
    )
    rows = np.array([ratios, ratios[::-1]])
    twice = _ratio_order.order_of(rows.copy(), numpy_namespace)
    np.testing.assert_array_equal(twice[0], expected)
    np.testing.assert_array_equal(twice[1], np.argsort(known[::-1], stable=True))


def test_clip_survives_ratios_that_overflow() -> None:
    q, p = np.array([1.0, 0.0, 5e-324]), np.array([0.5, 0.25, 0.25])
    for rule in (cr.Mentored(0.1), cr.Mentored(0.3, "reverse_kl"), cr.Mentored(50.0), cr.Band(3.0)):
        law = cr.output_law(p, q, rule)
        assert np.all(np.isfinite(law))
        assert law[1] == 0
        assert mp.fsum(law) == pytest.approx(1.0, rel=1e-14)
