"""`accept`: the decision on one drafted token, its residual, and batches of them."""

from __future__ import annotations

import enumeration
import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr

DTYPES = ["float16", "float32", "float64"]


def test_the_example_of_the_paper() -> None:
    # q_n = .35, p_n = .80: acceptance 44 % -> 82 % at KL .198, g = .66.
    p, q = np.array([0.1, 0.8, 0.1]), np.array([0.3, 0.35, 0.35])
    lossless = cr.accept(p, q, 1, rule=cr.Lossless())
    cactus = cr.accept(p, q, 1, 0.198)
    assert float(lossless.probability) == pytest.approx(0.4375)
    assert float(cactus.cap) == pytest.approx(0.66, abs=0.002)
    assert float(cactus.probability) == pytest.approx(0.82, abs=0.005)
    assert float(cactus.scale) == pytest.approx((1 - float(cactus.cap)) / 0.65)


def test_delta_is_short_for_the_exact_cactus_rule() -> None:
    p, q = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    short, long = cr.accept(p, q, 1, 0.2), cr.accept(p, q, 1, rule=cr.Cactus(0.2))
    assert (short.probability, short.cap, short.scale) == (long.probability, long.cap, long.scale)


def test_exactly_one_of_delta_and_rule_is_needed() -> None:
    p = np.array([0.5, 0.5])
    for both in ({}, {"delta": 0.1, "rule": cr.Lossless()}):
        with pytest.raises(ValueError, match=r"give either delta .* or rule=\.\.\., exactly one"):
            cr.accept(p, p, 0, **both)  # type: ignore[arg-type]


def test_p_and_q_are_positional_only() -> None:
    p = np.array([0.5, 0.5])
    with pytest.raises(TypeError):
        cr.accept(p=p, q=p, token=0, delta=0.1)  # type: ignore[call-arg]


def test_the_coin_is_strict() -> None:
    # u p_n < cap: at equality, and at u = 0 with cap = 0, the token is rejected.
    p, q = np.array([0.5, 0.5]), np.array([0.25, 0.75])
    a = cr.accept(p, q, 0, rule=cr.Lossless())
    assert not a.decide(0.5)
    assert a.decide(np.nextafter(0.5, 0))
    excluded = cr.accept(np.array([0.5, 0.5]), np.array([0.0, 1.0]), 0, rule=cr.Lossless())
    assert not excluded.decide(0.0)


@given(strategies.pairs(), strategies.RULES, st.booleans())
def test_probability_cap_and_residual_are_those_of_the_enumeration(
    pair: strategies.Pair, rule: cr.Rule, one_hot: bool
) -> None:
    p, q = pair
    try:
        steps = list(enumeration.steps(p.tolist(), q.tolist(), rule, one_hot))
    except enumeration.BorderlineError:
        return
    for n, keep, replacement in steps:
        a = cr.accept(None if one_hot else p, q, n, rule=rule)
        slack = 1e-8 if rule.reads == "rows" else tolerances.law(len(p))
        assert p[n] * float(a.probability) == pytest.approx(p[n] * keep, abs=slack)
        told = 1.0 if one_hot or rule.ignores_draft else float(p[n])
        assert float(a.probability) == min(1.0, float(a.cap) / told)
        residual = a.residual()
        assert residual.sum() == pytest.approx(1.0, rel=1e-14)
        # A residual of little mass has lost digits; what counts is the mass that is drawn from it.
        rejected = p[n] * (1 - keep)
        np.testing.assert_allclose(
            rejected * residual, rejected * np.array(replacement), rtol=0, atol=slack
        )


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_a_batch_is_a_loop_bit_for_bit(rule: cr.Rule, kind: Kind) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.full(19, 0.4), size=(2, 3, 4))
    token = rng.integers(0, 19, size=(3, 4))
    for draft in (p, None):
        many = cr.accept(
            None if draft is None else kind.make(draft), kind.make(q), kind.make(token), rule=rule
        )
        residual = kind.back(many.residual())
        for at in ((0, 0), (1, 3), (2, 2)):
            one = cr.accept(
                None if draft is None else kind.make(draft[at]),
                kind.make(q[at]),
                kind.make(token[at]),
                rule=rule,
            )
            for name in ("probability", "cap", "scale", "status"):
                left, right = kind.back(getattr(many, name))[at], kind.back(getattr(one, name))
                assert left == right, name
            np.testing.assert_array_equal(residual[at], kind.back(one.residual()))


def test_rows_and_tokens_broadcast() -> None:
    p, q = np.array([0.5, 0.3, 0.2]), np.array([[0.2, 0.3, 0.5], [0.6, 0.2, 0.2]])
    a = cr.accept(p, q, np.array([0, 1]), 0.1)
    assert a.cap.shape == (2,)
    assert a.residual().shape == (2, 3)
    one_row = cr.accept(p, q[0], np.array([0, 1, 2]), 0.1)
    assert one_row.residual().shape == (3, 3)
    np.testing.assert_array_equal(one_row.residual()[0], a.residual()[0])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_float_dtype_is_read_as_it_is(dtype: str, kind: Kind) -> None:
    if dtype == "float16" and kind.name == "array-api-strict":
        pytest.skip("array-api-strict has no float16")
    p, q = np.array([0.5, 0.3, 0.2], dtype=dtype), np.array([0.2, 0.3, 0.5], dtype=dtype)
    wide_p, wide_q = p.astype(np.float64), q.astype(np.float64)
    for rule in strategies.EXAMPLES:
        a = cr.accept(kind.make(p), kind.make(q), kind.make(np.int64(0)), rule=rule)
        b = cr.accept(wide_p, wide_q, 0, rule=rule, policy="safe")
        assert kind.back(a.cap).dtype == np.float64
        np.testing.assert_allclose(kind.back(a.cap), b.cap, rtol=1e-12)
        np.testing.assert_allclose(kind.back(a.residual()), b.residual(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint32", "int64", "uint64"])
def test_tokens_of_any_integer_dtype(dtype: str) -> None:
    p, q = np.array([[0.5, 0.3, 0.2]] * 2), np.array([[0.2, 0.3, 0.5]] * 2)
    for rule in (cr.Cactus(0.1), cr.Mentored(0.1), cr.TopK(1), cr.SampleMatch()):
        a = cr.accept(p, q, np.array([0, 2], dtype=dtype), rule=rule)
        b = cr.accept(p, q, np.array([0, 2]), rule=rule)
        np.testing.assert_array_equal(a.cap, b.cap)
        np.testing.assert_array_equal(a.residual(), b.residual())
        v = cr.verify(p[:1], q, np.array([2], dtype=dtype), rule, uniforms=np.full((2, 2), 0.5))
        assert 0 <= v.token_ids[0] < 3


def test_arguments_are_not_written_to() -> None:
    rng = np.random.default_rng(0)
    p, q = rng.dirichlet(np.ones(5), size=(2, 4))
    token = np.argmax(p, axis=-1)
    before = p.copy(), q.copy(), token.copy()
    for rule in strategies.EXAMPLES:
        cr.accept(p, q, token, rule=rule).sample(rng)
        cr.output_law(p, q, rule)
    for array, copy in zip((p, q, token), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_sample_keeps_the_token_or_draws_from_the_residual() -> None:
    p, q = np.array([[0.9, 0.1, 0.0]] * 4000), np.array([[0.1, 0.3, 0.6]] * 4000)
    a = cr.accept(p, q, np.zeros(4000, dtype=np.int64), rule=cr.Lossless())
    accepted, token = a.sample(np.random.default_rng(0))
    assert np.all(token[accepted] == 0)
    drawn = np.bincount(token[~accepted], minlength=3) / (~accepted).sum()
    # Residual (0, .2, .6)/.8; five standard errors at 3,500 draws.
    assert drawn[0] == 0
    assert abs(drawn[2] - 0.75) < 5 * np.sqrt(0.75 * 0.25 / 3500)
    assert abs(accepted.mean() - 1 / 9) < 5 * np.sqrt(1 / 9 * 8 / 9 / 4000)
    single = cr.accept(p[0], q[0], 0, rule=cr.Lossless()).sample(np.random.default_rng(1))
    assert int(single[1]) in (0, 1, 2)


def test_sample_uses_two_numbers_for_coin_and_draw() -> None:
    # With one number for both, a rejected coin (u >= .5) would never draw a token below .5.
    p, q = np.array([[1.0, 0.0, 0.0]] * 500), np.array([[0.5, 0.25, 0.25]] * 500)
    a = cr.accept(p, q, np.zeros(500, dtype=np.int64), rule=cr.Lossless())
    _, token = a.sample(np.random.default_rng(0))
    assert set(token.tolist()) == {0, 1, 2}


def test_uniform_numbers_outside_their_range_are_refused() -> None:
    p = np.array([0.5, 0.5])
    a = cr.accept(p, p, 0, 0.1)
    for u in (1.0, -0.1, np.nan):
        with pytest.raises(ValueError, match=r"u must be in \[0, 1\): draw them with rng\.random"):
            a.decide(u)
