"""The exact output law, against enumeration over drafted tokens."""

from __future__ import annotations

import enumeration
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given, reject
from hypothesis import strategies as st

import cactus_rules as cr


def _tolerance(rule: cr.Rule, width: int) -> float:
    if isinstance(rule, (cr.Mentored, cr.Band)):
        return tolerances.searched_law(width)
    order = getattr(getattr(rule, "divergence", None), "order", None)
    given_away = 0.0 if order is None else tolerances.boost_ulps(order) * tolerances.EPS
    return tolerances.law(width) + given_away


def _enumerated(p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool) -> tuple:
    try:
        return enumeration.output(p.tolist(), q.tolist(), rule, one_hot)
    except enumeration.BorderlineError:
        reject()


@strategies.times(6)
@given(strategies.pairs(), strategies.RULES, st.booleans())
def test_output_law_is_the_enumerated_one(
    pair: strategies.Pair, rule: cr.Rule, one_hot: bool
) -> None:
    p, q = pair
    expected, rate = _enumerated(p, q, rule, one_hot)
    audit = cr.audit(p, q, rule, one_hot=one_hot)
    tolerance = _tolerance(rule, len(p))
    np.testing.assert_allclose(audit.law, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(audit.acceptance_rate, rate, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(audit.law, cr.output_law(p, q, rule, one_hot=one_hot))


@pytest.mark.parametrize("one_hot", [False, True], ids=["rows", "one-hot"])
@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_output_law_is_the_enumerated_one_for_each_rule(rule: cr.Rule, one_hot: bool) -> None:
    rng = np.random.default_rng(0)
    for zeros in (0, 0, 1, 2, 3):
        p, q = strategies.distinct_pair(rng, 6, zeros)
        expected, rate = enumeration.output(p.tolist(), q.tolist(), rule, one_hot)
        audit = cr.audit(p, q, rule, one_hot=one_hot)
        tolerance = _tolerance(rule, len(p))
        np.testing.assert_allclose(audit.law, expected, rtol=0, atol=tolerance)
        np.testing.assert_allclose(audit.acceptance_rate, rate, rtol=0, atol=tolerance)
