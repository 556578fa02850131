"""The law of what `verify` emits, integrated exactly over drafts and uniforms."""

from __future__ import annotations

import chains
import enumeration
import numpy as np
import pytest
import strategies

import cactus_rules as cr

FIXED = [rule for rule in strategies.EXAMPLES if rule.fixed_law]

SLACK = 1e-8
"""Where a threshold was searched it is off by 2^-30, and so are the weights on its sides."""


def _rows(k: int, width: int, seed: int) -> strategies.Pair:
    """K draft rows and K + 1 target rows, with zeros in both."""
    rng = np.random.default_rng(seed)
    pairs = [strategies.distinct_pair(rng, width, zeros=i % 2) for i in range(k + 1)]
    p = np.array([pair[0] for pair in pairs[:k]]).reshape(k, width)
    return p, np.array([pair[1] for pair in pairs])


@pytest.mark.parametrize("one_hot", [False, True], ids=["rows", "one-hot"])
@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_token_walk_emits_the_enumerated_law(rule: cr.Rule, one_hot: bool) -> None:
    for k, width in ((0, 4), (1, 5), (2, 4)):
        p, q = _rows(k, width, seed=k)
        law, _ = chains.integrate(p, q, rule, one_hot)
        assert chains.distance(law, chains.enumerated(p, q, rule, one_hot)) <= SLACK


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_one_position_emits_the_output_law(rule: cr.Rule) -> None:
    for seed in range(3):
        p, q = _rows(1, 5, seed)
        law, accepted = chains.integrate(p, q, rule)
        first = np.zeros(5)
        for tokens, mass in law.items():
            first[tokens[0]] += mass
        audit = cr.audit(p[0], q[0], rule)
        np.testing.assert_allclose(first, audit.law, rtol=0, atol=SLACK)
        assert accepted == pytest.approx(float(audit.acceptance_rate), abs=SLACK)


def _laws(p: np.ndarray, q: np.ndarray, rule: cr.Rule) -> list[list[float]]:
    rows = zip(p.tolist(), q.tolist(), strict=False)
    return [enumeration.output(*row, rule)[0] for row in rows] + [q[-1].tolist()]


@pytest.mark.parametrize("walk", ["token", "block"])
@pytest.mark.parametrize("rule", FIXED, ids=strategies.name_of)
def test_tokens_of_both_walks_have_the_law_of_the_rule(rule: cr.Rule, walk: str) -> None:
    # Four tokens, so that a residual has more than one of them.
    for k, width in ((1, 4), (2, 4), (3, 2)):
        p, q = _rows(k, width, seed=10 + k)
        laws = _laws(p, q, rule)
        law, _ = chains.integrate(p, q, rule, walk=walk)
        assert chains.distance(chains.completed(law, laws), chains.product(laws)) <= SLACK


@pytest.mark.parametrize("rule", FIXED, ids=strategies.name_of)
def test_block_walk_accepts_at_least_as_much(rule: cr.Rule) -> None:
    for k, width in ((1, 4), (2, 3), (3, 2)):
        p, q = _rows(k, width, seed=20 + k)
        _, token = chains.integrate(p, q, rule)
        _, block = chains.integrate(p, q, rule, walk="block")
        assert block >= token - SLACK
        if k == 1 and rule.metered:  # these accept sum min(p, law), the most that a law allows
            assert block == pytest.approx(token, abs=SLACK)


def test_block_walk_accepts_more_on_the_example_of_its_paper() -> None:
    # Sun et al.: two tokens, p = (2/3, 1/3), q = (1/3, 2/3), K = 2: 10/9 against 11/9.
    p, q = np.array([[2 / 3, 1 / 3]] * 2), np.array([[1 / 3, 2 / 3]] * 3)
    _, token = chains.integrate(p, q, cr.Lossless())
    _, block = chains.integrate(p, q, cr.Lossless(), walk="block")
    assert token == pytest.approx(10 / 9, abs=SLACK)
    assert block == pytest.approx(11 / 9, abs=SLACK)


@pytest.mark.parametrize(
    "rule", [cr.Lossless(), cr.Cactus(0.1), cr.Mentored(0.2), cr.Typical(), cr.TopK(2)], ids=repr
)
def test_one_hot_drafts_walk_in_blocks_of_any_rule(rule: cr.Rule) -> None:
    p, q = _rows(2, 3, seed=5)
    rows = zip(p.tolist(), q.tolist(), strict=False)
    laws = [enumeration.output(*row, rule, one_hot=True)[0] for row in rows] + [q[-1].tolist()]
    law, _ = chains.integrate(p, q, rule, one_hot=True, walk="block")
    assert chains.distance(chains.completed(law, laws), chains.product(laws)) <= SLACK


def test_block_walk_refuses_rules_whose_law_depends_on_the_draft() -> None:
    p, q = _rows(2, 3, seed=5)
    with pytest.raises(ValueError, match=r"walk='block' needs .* not Cactus: use walk='token'"):
        cr.verify(p, q, [0, 1], cr.Cactus(0.1), rng=np.random.default_rng(0), walk="block")
    with pytest.raises(ValueError, match="walk must be 'token' or 'block', got 'tree'"):
        cr.verify(p, q, [0, 1], cr.Lossless(), rng=np.random.default_rng(0), walk="tree")
