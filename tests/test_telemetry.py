"""What `kl_spent` and `tv_spent` are, in expectation, computed exactly for one position."""

from __future__ import annotations

import enumeration
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from hypothesis import strategies as st

import cactus_rules as cr


def _expected(
    p: np.ndarray, q: np.ndarray, rule: cr.Rule, one_hot: bool
) -> tuple[float, float] | None:
    """Expected kl_spent and tv_spent of one drafted token; None where a jump is within rounding."""
    try:
        steps = list(enumeration.steps(p.tolist(), q.tolist(), rule, one_hot))
    except enumeration.BorderlineError:
        return None
    sides = [
        (n, u, p[n] * mass)
        for n, keep, _ in steps
        for u, mass in ((keep / 2, keep), ((1 + keep) / 2, 1 - keep))
        if mass > 1e-9
    ]
    if not sides:
        return None
    token, u, weight = (np.array(column) for column in zip(*sides, strict=True))
    many = len(token)
    uniforms = np.zeros((many, 2, 2))
    uniforms[:, 0, 0] = u
    v = cr.verify(
        None if one_hot else np.broadcast_to(p, (many, 1, len(p))),
        np.broadcast_to(q, (many, 2, len(q))),
        token[:, None].astype(np.int64),
        rule,
        uniforms=uniforms,
    )
    assert v.kl_spent is not None
    assert v.tv_spent is not None
    return float(v.kl_spent @ weight), float(v.tv_spent @ weight)


@strategies.times(4)
@given(strategies.pairs(), strategies.MONOTONE_RULES)
def test_kl_spent_bounds_the_kl_of_the_output_law(pair: strategies.Pair, rule: cr.Rule) -> None:
    p, q = pair
    spent = _expected(p, q, rule, one_hot=False)
    if spent is None:
        return
    audit = cr.audit(p, q, rule)
    # Where output/q is huge, an ulp of the output costs its logarithm, at most 745.
    assert spent[0] >= float(audit.kl) - 745 * tolerances.searched_law(len(p))
    assert spent[0] >= 0


@strategies.times(4)
@given(strategies.pairs(), strategies.MONOTONE_RULES)
def test_tv_spent_is_the_total_variation_of_the_output_law(
    pair: strategies.Pair, rule: cr.Rule
) -> None:
    p, q = pair
    spent = _expected(p, q, rule, one_hot=False)
    if spent is not None:
        # Sides of a coin of less than 1e-9 are left out of the expectation.
        assert spent[1] == pytest.approx(float(cr.audit(p, q, rule).tv), abs=1e-8)


@given(strategies.pairs(), st.sampled_from([0.0, 0.1, 1.0]))
def test_with_one_hot_drafts_the_bounds_hold_too(pair: strategies.Pair, delta: float) -> None:
    p, q = pair
    # A one-hot draft in truth: the surrogate is the output law.
    p = np.eye(len(q))[int(np.argmax(p))]
    for rule in (cr.Cactus(delta), cr.Mentored(delta), cr.Lossless(), cr.SampleMatch()):
        spent = _expected(p, q, rule, one_hot=True)
        assert spent is not None
        audit = cr.audit(p, q, rule, one_hot=True)
        assert spent[0] >= float(audit.kl) - 745 * tolerances.searched_law(len(p))
        assert spent[1] == pytest.approx(float(audit.tv), abs=1e-8)


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_rules_without_the_property_report_none(rule: cr.Rule) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.ones(5), (2, 3)), rng.dirichlet(np.ones(5), (2, 2))
    v = cr.verify(p, q, np.zeros((2, 2), dtype=np.int64), rule, rng=rng)
    metrics = cr.Metrics()
    metrics.add(v)
    unmetered = {"typical", "threshold", "top-k", "nucleus", "min-p", "relaxed-top-n"}
    assert (v.kl_spent is None) == (v.tv_spent is None) == (rule.name in unmetered)
    assert (metrics.kl_spent is None) == (metrics.tv_spent is None) == (rule.name in unmetered)


def test_spent_sums_run_over_the_positions_that_were_tested() -> None:
    # Two tokens kept beyond the target's share, one rejected, one never looked at.
    p, q = np.array([0.25, 0.75]), np.array([0.05, 0.95])
    rule = cr.Lenience(2.0)
    u = np.zeros((5, 2))
    u[2, 0] = 0.9
    v = cr.verify(np.tile(p, (4, 1)), np.tile(q, (5, 1)), [0, 0, 0, 0], rule, uniforms=u)
    assert v.num_accepted == 2
    assert float(v.kl_spent) == pytest.approx(2 * np.log(2))  # type: ignore[arg-type]
    assert float(v.tv_spent) == pytest.approx(3 * (0.4 - 0.2))  # type: ignore[arg-type]
