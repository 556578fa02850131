"""Statements about the output law, each for the rules for which it is made."""

from __future__ import annotations

import judge
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mpf

import cactus_rules as cr
from cactus_rules.divergences import Divergence

LOSSLESS = (
    cr.Lossless(),
    cr.SampleMatch(),
    cr.Cactus(0.0),
    cr.Cactus(0.0, "js"),
    cr.Cactus(0.0, solver="taylor"),
    cr.Cactus(0.0, solver="closed"),
    cr.Mentored(0.0),
    cr.Mentored(0.0, "max"),
    cr.Band(0.0),
    cr.Lenience(1.0),
    cr.Ensemble(1.0),
    cr.ReducibleFuzzy(0.0),
    cr.Threshold(1.0, np.inf),
)


def _inside(p: np.ndarray, q: np.ndarray) -> bool:
    """Whether the draft drafts only what the target allows."""
    return not np.any((p > 0) & (q == 0))


@strategies.times(2)
@given(strategies.pairs(), strategies.RULES, st.booleans())
def test_support_is_preserved(pair: strategies.Pair, rule: cr.Rule, one_hot: bool) -> None:
    p, q = pair
    law = cr.output_law(p, q, rule, one_hot=one_hot)
    assert np.all(law[q == 0] == 0)
    assert np.all(law >= 0)
    assert abs(law.sum() - 1) <= tolerances.law(len(p))


@strategies.times(2)
@given(strategies.pairs(), strategies.MONOTONE_RULES)
def test_output_law_lies_between_draft_and_target(pair: strategies.Pair, rule: cr.Rule) -> None:
    p, q = pair
    law = cr.output_law(p, q, rule)
    slack = tolerances.law(len(p))
    assert np.all(law >= np.minimum(p, q) - slack)
    assert np.all(law <= np.maximum(p, q) + slack)


@strategies.times(2)
@given(strategies.pairs(), strategies.MONOTONE_RULES, strategies.DIVERGENCES)
def test_output_law_is_no_farther_than_the_draft(
    pair: strategies.Pair, rule: cr.Rule, record: Divergence
) -> None:
    p, q = pair
    far = float(record.between(p, q))
    near = float(record.between(cr.output_law(p, q, rule), q))
    # An ulp of a law costs the divergence's slope at the largest ratio: a part of the divergence.
    assert near <= far * (1 + 1e-6) + 1e-6 or near == far


@strategies.times(2)
@given(strategies.pairs(), strategies.MONOTONE_RULES)
def test_total_variation_is_the_acceptance_bought(pair: strategies.Pair, rule: cr.Rule) -> None:
    p, q = pair
    audit = cr.audit(p, q, rule)
    bought = audit.acceptance_rate - cr.audit(p, q, cr.Lossless()).acceptance_rate
    assert abs(audit.tv - bought) <= 2 * tolerances.law(len(p))


@pytest.mark.parametrize("rule", LOSSLESS, ids=strategies.name_of)
@given(strategies.pairs(), st.booleans())
def test_a_budget_of_0_is_lossless(rule: cr.Rule, pair: strategies.Pair, one_hot: bool) -> None:
    p, q = pair
    law = cr.output_law(p, q, rule, one_hot=one_hot)
    np.testing.assert_allclose(law, q, rtol=0, atol=tolerances.law(len(p)))


@given(strategies.pairs())
def test_lossless_accepts_most_of_all_lossless_rules(pair: strategies.Pair) -> None:
    p, q = pair
    rate = cr.audit(p, q, cr.Lossless()).acceptance_rate
    slack = tolerances.law(len(p))
    assert abs(rate - np.minimum(p, q).sum()) <= slack
    matched = cr.audit(p, q, cr.SampleMatch()).acceptance_rate
    assert abs(matched - (p * q).sum()) <= slack
    assert matched <= rate + slack


@strategies.times(2)
@given(
    strategies.exact_pairs(),
    st.floats(1e-9, 5.0),
    strategies.DIVERGENCES,
    st.sampled_from(["exact", "closed"]),
)
def test_with_one_hot_drafts_cactus_keeps_delta_on_the_output_law(
    pair: strategies.Pair, delta: float, record: Divergence, solver: str
) -> None:
    rule = cr.Cactus(delta, record if solver == "exact" else "kl", solver)  # type: ignore[arg-type]
    record = rule.divergence  # type: ignore[assignment]
    _, q = pair
    for n in range(len(q)):
        law = _one_hot_law(q, n, rule)
        order = getattr(record, "order", None)
        assert judge.full(record.name, law, q.tolist(), order) <= mpf(delta)


def _one_hot_law(q: np.ndarray, n: int, rule: cr.Rule) -> list[mpf]:
    """The output law at 50 digits of a draft that is one-hot at n, from the rule's numbers."""
    a = cr.accept(None, q, n, rule=rule)
    told = np.eye(len(q))[n]
    return judge.output(told.tolist(), q.tolist(), [float(a.cap)] * len(q), [1.0] * len(q))


@given(strategies.pairs(), st.floats(1e-6, 5.0), strategies.DIVERGENCES)
def test_with_one_hot_drafts_cactus_is_mentored(
    pair: strategies.Pair, delta: float, record: Divergence
) -> None:
    p, q = pair
    cactus = cr.output_law(p, q, cr.Cactus(delta, record), one_hot=True)
    mentored = cr.output_law(p, q, cr.Mentored(delta, record), one_hot=True)
    np.testing.assert_allclose(cactus, mentored, rtol=0, atol=tolerances.law(len(p)))
    # And the clip rule on a row that happens to be one-hot finds the same surrogate.
    row = np.eye(len(q))[int(np.argmax(q))]
    cactus, mentored = (
        cr.output_law(row, q, rule(delta, record)) for rule in (cr.Cactus, cr.Mentored)
    )
    np.testing.assert_allclose(cactus, mentored, rtol=0, atol=tolerances.searched_law(len(p)))


@given(strategies.pairs(), st.sampled_from([1.0, 1.2, 3.0, 1e9]))
def test_lenience_lets_no_token_grow_by_more_than_its_factor(
    pair: strategies.Pair, factor: float
) -> None:
    p, q = pair
    law = cr.output_law(p, q, cr.Lenience(factor))
    assert np.all(law <= factor * q * (1 + 1e-12) + tolerances.law(len(p)) * (q > 0))


@given(strategies.pairs(), st.floats(0.0, 1.0))
def test_ensemble_is_the_mixture(pair: strategies.Pair, weight: float) -> None:
    p, q = pair
    audit = cr.audit(p, q, cr.Ensemble(weight))
    slack = tolerances.law(len(p))
    if _inside(p, q):
        mixture = weight * q + (1 - weight) * p
        np.testing.assert_allclose(audit.law, mixture, rtol=0, atol=slack)
    assert audit.tv <= (1 - weight) * cr.divergences.get("tv").between(p, q) + slack


@given(strategies.pairs(), st.floats(0.0, 6.0))
def test_band_keeps_the_log_ratio_within_its_width(pair: strategies.Pair, width: float) -> None:
    p, q = pair
    law = cr.output_law(p, q, cr.Band(width))
    assert np.all(law <= np.exp(width) * q * (1 + 1e-9) + tolerances.law(len(p)) * (q > 0))


def test_cactus_keeps_delta_on_the_surrogate_but_not_on_the_output_law() -> None:
    q = np.array([0.9] + [0.01] * 10)
    p = np.array([0.0] + [0.1] * 10)
    for solver, kl in (("taylor", 0.61), ("exact", 1.38)):
        rule = cr.Cactus(0.1, solver=solver)  # type: ignore[arg-type]
        assert float(cr.audit(p, q, rule).kl) == pytest.approx(kl, abs=0.005)
    assert cr.audit(p, q, cr.Mentored(0.1)).kl <= 0.1


@pytest.mark.parametrize(("width", "k"), [(64, 4), (200, 10)])
def test_output_law_of_cactus_reaches_the_divergence_of_the_draft(width: int, k: int) -> None:
    q = np.full(width, 1 / width)
    p = np.where(np.arange(width) < k, 1 / k, 0.0)
    # A budget at which a token may be raised to 1/k while the ten of them cost log(V/k).
    delta = float(cr.divergences.get("kl").two_point(1 / k, 1 / width)) * (1 + 1e-9)
    assert delta < np.log(width / k) / 2
    assert float(cr.audit(p, q, cr.Cactus(delta)).kl) == pytest.approx(np.log(width / k))


@given(strategies.pairs(), st.floats(0.0, 5.0))
def test_total_variation_of_taylor_is_within_its_cauchy_bound(
    pair: strategies.Pair, delta: float
) -> None:
    p, q = pair
    above = p > q
    bound = np.sqrt(2 * delta * above.sum() * q[above].sum())
    assert cr.audit(p, q, cr.Cactus(delta, solver="taylor")).tv <= bound + tolerances.law(len(p))


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_permuting_the_vocabulary_commutes(rule: cr.Rule) -> None:
    rng = np.random.default_rng(0)
    for zeros in (0, 1, 3):
        # Without ties, which set rules give to the lower id.
        p, q = strategies.distinct_pair(rng, 9, zeros)
        order = rng.permutation(9)
        for one_hot in (False, True):
            law = cr.output_law(p, q, rule, one_hot=one_hot)
            moved = cr.output_law(p[order], q[order], rule, one_hot=one_hot)
            slack = tolerances.searched_law(9) if rule.reads == "rows" else tolerances.law(9)
            np.testing.assert_allclose(moved, law[order], rtol=0, atol=slack)
