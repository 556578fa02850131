"""What `verify` returns beside the tokens: lengths, log-probabilities, padding, batches."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import strategies
from kinds import Kind

import cactus_rules as cr


def _batch(many: int = 6, k: int = 3, width: int = 9) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(5)
    q = rng.dirichlet(np.full(width, 0.5), size=(many, k + 1))
    p = rng.dirichlet(np.full(width, 0.5), size=(many, k))
    token = (rng.random(p.shape) * p).argmax(axis=-1)
    token[np.arange(k) >= rng.integers(0, k + 1, size=(many, 1))] = -1
    return p, q, token, rng.random((many, k + 1, 2))


@pytest.mark.parametrize("walk", ["token", "block"])
@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_tokens_lengths_and_log_probabilities_fit_together(rule: cr.Rule, walk: str) -> None:
    p, q, token, u = _batch(40)
    v = cr.verify(p, q, token, rule, uniforms=u, walk=walk if rule.fixed_law else "token")
    for i in range(40):
        accepted, drafted = int(v.num_accepted[i]), int(v.num_draft_tokens[i])
        assert drafted == np.argmax(np.append(token[i], -1) == -1)
        assert 0 <= accepted <= drafted
        emitted = v.token_ids[i]
        np.testing.assert_array_equal(emitted[:accepted], token[i, :accepted])
        assert emitted[accepted] >= 0
        np.testing.assert_array_equal(emitted[accepted + 1 :], -1)
        chosen = q[i, np.arange(accepted + 1), emitted[: accepted + 1]]
        assert np.all(chosen > 0)
        np.testing.assert_array_equal(v.logprobs[i, : accepted + 1], np.log(chosen))
        assert np.all(np.isnan(v.logprobs[i, accepted + 1 :]))


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_a_batch_is_a_loop_bit_for_bit(rule: cr.Rule, kind: Kind) -> None:
    p, q, token, u = _batch(4)
    for draft in (p, None):
        for walk in ("token", "block") if rule.fixed_law else ("token",):
            rows = [None if x is None else kind.make(x) for x in (draft, q, token)]
            whole = cr.verify(*rows, rule, uniforms=kind.make(u), walk=walk)
            for i in range(4):
                rows = [None if x is None else kind.make(x[i]) for x in (draft, q, token)]
                one = cr.verify(*rows, rule, uniforms=kind.make(u[i]), walk=walk)
                for field in dataclasses.fields(one):
                    left, right = (getattr(x, field.name) for x in (whole[i], one))
                    assert (left is None) == (right is None)
                    if left is not None:
                        np.testing.assert_array_equal(kind.back(left), kind.back(right))


def test_any_number_of_leading_axes() -> None:
    p, q, token, u = _batch(6)
    flat = cr.verify(p, q, token, cr.Cactus(0.1), uniforms=u)
    folded = [x.reshape(2, 3, *x.shape[1:]) for x in (p, q, token)]
    deep = cr.verify(*folded, cr.Cactus(0.1), uniforms=u.reshape(2, 3, *u.shape[1:]))
    np.testing.assert_array_equal(deep.token_ids.reshape(6, -1), flat.token_ids)
    np.testing.assert_array_equal(deep[1, 2].token_ids, flat[5].token_ids)


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_no_draft_at_all_draws_from_the_target(rule: cr.Rule, kind: Kind) -> None:
    row = np.array([[0.25, 0.0, 0.5, 0.25]])
    for draft in (None, kind.make(np.zeros((0, 4)))):
        for u, expected in ((0.0, 0), (0.25, 2), (0.8, 3)):
            uniforms = kind.make(np.array([[0.99, u]]))
            none = kind.make(np.zeros(0, dtype=np.int64))
            v = cr.verify(draft, kind.make(row), none, rule, uniforms=uniforms)
            assert kind.back(v.token_ids).tolist() == [expected]
            assert int(v.num_accepted) == int(v.num_draft_tokens) == 0


def test_an_empty_batch_is_an_answer() -> None:
    v = cr.verify(
        np.zeros((0, 2, 4)), np.zeros((0, 3, 4)), np.zeros((0, 2), int), cr.Mentored(0.1),
        uniforms=np.zeros((0, 3, 2)),
    )  # fmt: skip
    assert v.token_ids.shape == (0, 3)
    assert v.num_accepted.shape == (0,)


def test_what_follows_the_first_pad_is_no_draft() -> None:
    p, q, _, u = _batch(1)
    v = cr.verify(p, q, [[3, -1, 3]], cr.TopK(9), uniforms=u)
    assert v.num_draft_tokens.tolist() == [1]
    assert v.num_accepted.tolist() == [1]
    assert (v.token_ids[0] >= 0).tolist() == [True, True, False, False]


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_drafts_of_any_signed_dtype(dtype: str, kind: Kind) -> None:
    p, q, token, u = _batch(4)
    rows = [kind.make(x) for x in (p, q)]
    v = cr.verify(*rows, kind.make(token.astype(dtype)), cr.Cactus(0.1), uniforms=kind.make(u))
    expected = cr.verify(p, q, token, cr.Cactus(0.1), uniforms=u)
    np.testing.assert_array_equal(kind.back(v.token_ids), expected.token_ids)


def test_drafts_and_parameters_may_be_plain_lists() -> None:
    v = cr.verify(
        None, np.array([[0.0, 1.0]] * 3), [1, 1], cr.Lossless(), uniforms=[[0.5, 0.5]] * 3
    )
    np.testing.assert_array_equal(v.token_ids, [1, 1, 1])
