"""Candidate lists: the same answers as dense rows, matched by id and never by index."""

from __future__ import annotations

import numpy as np
import pytest
import strategies
import tolerances
from hypothesis import given
from hypothesis import strategies as st

import cactus_rules as cr

V = 8


def _shuffled(rng: np.random.Generator, row: np.ndarray, padding: int = 0) -> cr.Sparse:
    """The tokens with probability of a dense row, in random order, with padding between them."""
    kept = np.flatnonzero(row)
    ids = np.concatenate([kept, np.full(padding, -1)])
    # Padding may hold anything: it is not read.
    probs = np.concatenate([row[kept], np.full(padding, 0.7, dtype=row.dtype)])
    order = rng.permutation(len(ids))
    return cr.Sparse(ids[order], probs[order])


@strategies.times(2)
@given(strategies.pairs(V, V), strategies.RULES, st.integers(0, 2**32), st.integers(0, 3))
def test_accept_on_lists_is_accept_on_rows(
    pair: strategies.Pair, rule: cr.Rule, seed: int, padding: int
) -> None:
    p, q = pair
    rng = np.random.default_rng(seed)
    n = int(rng.choice(np.flatnonzero(p)))
    dense = cr.accept(p, q, n, rule=rule)
    listed = cr.accept(
        _shuffled(rng, p, padding), _shuffled(rng, q, padding), n, rule=rule
    )  # fmt: skip
    slack = 1e-8 if rule.reads == "rows" else tolerances.law(V)
    near = abs(float(dense.probability) - float(listed.probability)) <= slack / p[n]
    # Sums over other groups of numbers may bring a rule to the other side of its jump.
    jumps = rule.reads != "pair"
    if not near and jumps and not _steady(p, q, rule, n):
        return
    assert near
    assert listed.ids is not None
    kept = listed.ids >= 0
    residual = np.zeros(V)
    residual[listed.ids[kept]] = listed.residual()[kept]
    rejected = p[n] * (1 - float(dense.probability))
    np.testing.assert_allclose(
        rejected * residual, rejected * dense.residual(), rtol=0, atol=2 * slack
    )


def _steady(p: np.ndarray, q: np.ndarray, rule: cr.Rule, n: int) -> bool:
    """Whether the rule decides alike when its rows move by a rounding."""
    decided = []
    for shift in (-1e-12, 1e-12):
        moved = q * (1 + shift * np.arange(V))
        moved = moved / moved.sum()
        decided.append(float(cr.accept(p, moved, n, rule=rule).probability))
    return abs(decided[0] - decided[1]) < 1e-6


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_verify_on_lists_emits_the_tokens_of_rows(rule: cr.Rule) -> None:
    rng = np.random.default_rng(0)
    many, k = 150, 2
    q = rng.dirichlet(np.full(V, 0.5), size=(many, k + 1))
    p = rng.dirichlet(np.full(V, 0.5), size=(many, k))
    q[..., 5:] *= rng.random((many, k + 1, 1)) > 0.5
    q, p = q / q.sum(-1, keepdims=True), p / p.sum(-1, keepdims=True)
    token = p.argmax(axis=-1)
    token[::7, 1] = -1
    u = rng.random((many, k + 1, 2))
    lists = []
    for rows in (p, q):
        rows_of_lists = [
            _shuffled(rng, row, 8 - np.count_nonzero(row)) for row in rows.reshape(-1, V)
        ]
        ids, probs = ([getattr(x, name) for x in rows_of_lists] for name in ("ids", "probs"))
        lists.append(cr.Sparse(np.reshape(ids, rows.shape), np.reshape(probs, rows.shape)))
    for draft, listed in ((p, lists[0]), (None, None)):
        dense = cr.verify(draft, q, token, rule, uniforms=u)
        sparse = cr.verify(listed, lists[1], token, rule, uniforms=u)
        same = np.all(dense.token_ids == sparse.token_ids, axis=-1)
        assert (~same).sum() <= tolerances.BOUNDARY_SHARE * many
        np.testing.assert_allclose(sparse.logprobs[same], dense.logprobs[same], rtol=1e-12)
        np.testing.assert_array_equal(sparse.num_accepted[same], dense.num_accepted[same])


def test_draws_go_in_id_order() -> None:
    row = cr.Sparse(np.array([9, 2, 5]), np.array([0.25, 0.25, 0.5]))
    assert [cr.draw(row, u) for u in (0.0, 0.24, 0.25, 0.74, 0.75, 0.99)] == [2, 2, 5, 5, 9, 9]


def test_padding_is_never_drawn() -> None:
    row = cr.Sparse(np.array([-1, 3, -1, 1]), np.array([0.9, 0.5, 0.9, 0.5]))
    assert {cr.draw(row, u) for u in np.linspace(0, 0.999, 50)} == {1, 3}


def test_a_token_that_no_list_has_is_read_as_probability_0() -> None:
    p, q = (cr.Sparse(np.array([1, 2]), np.array([0.5, 0.5])) for _ in range(2))
    a = cr.accept(None, q, 7, 0.1)
    assert float(a.probability) == 0
    assert a.ids is not None
    np.testing.assert_array_equal(a.residual()[a.ids == 7], 0)
    p, q = _repeated(p, 1), _repeated(q, 2)
    v = cr.verify(p, q, [7], cr.Lossless(), uniforms=np.full((2, 2), 0.5), policy="safe")
    assert v.token_ids[0] in (1, 2)


def _repeated(row: cr.Sparse, many: int) -> cr.Sparse:
    return cr.Sparse(np.stack([row.ids] * many), np.stack([row.probs] * many))


def test_verify_needs_one_draft_row_per_token() -> None:
    p = cr.Sparse(np.array([[1, 2]]), np.array([[0.5, 0.5]]))
    q = cr.Sparse(np.array([[1, 2]] * 2), np.array([[0.5, 0.5]] * 2))
    v = cr.verify(p, q, [1], cr.Lossless(), uniforms=np.full((2, 2), 0.5))
    np.testing.assert_array_equal(v.token_ids, [1, 2])


@pytest.mark.parametrize("policy", ["strict", "safe"])
def test_a_token_listed_twice_has_the_sum(policy: str) -> None:
    p = cr.Sparse(np.array([1, 2, 1, -1]), np.array([0.25, 0.5, 0.25, 0.9]))
    q = cr.Sparse(np.array([3, 1, 1, 1]), np.array([0.25, 0.25, 0.25, 0.25]))
    np.testing.assert_array_equal(p.dense(4), [0, 0.5, 0.5, 0])
    for token in (1, 2):
        dense = cr.accept(p.dense(4), q.dense(4), token, rule=cr.Lossless(), policy=policy)
        listed = cr.accept(p, q, token, rule=cr.Lossless(), policy=policy)
        assert float(listed.probability) == float(dense.probability)
        np.testing.assert_array_equal(listed.residual(), dense.residual()[listed.ids])
    assert [cr.draw(q, u) for u in (0.0, 0.5, 0.74, 0.75)] == [1, 1, 1, 3]
    v = cr.verify(
        _repeated(p, 1),
        _repeated(q, 2),
        [1],
        cr.Lossless(),
        uniforms=np.full((2, 2), 0.6),
        policy=policy,
    )
    np.testing.assert_array_equal(v.token_ids, [1, 1])
    np.testing.assert_array_equal(np.exp(v.logprobs), [0.75, 0.75])


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_lists_keep_their_dtype_and_its_tolerance(dtype: str) -> None:
    rng = np.random.default_rng(0)
    row = rng.dirichlet(np.ones(40)).astype(dtype)
    listed = cr.Sparse(np.arange(40), row)
    a, b = cr.accept(listed, listed, 3, 0.1), cr.accept(row, row, 3, 0.1)
    assert float(a.cap) == float(b.cap)


@given(strategies.pairs(V, V))
def test_dense_and_from_dense_are_inverse(pair: strategies.Pair) -> None:
    rows = np.stack(pair)
    listed = cr.Sparse.from_dense(rows)
    np.testing.assert_array_equal(listed.dense(V), rows)
    assert np.all((listed.ids >= 0) == (listed.probs > 0))


NAN, INF = np.nan, np.inf

BAD_LISTS = {
    "empty": cr.Sparse([-1, -1], [0.5, 0.5]),
    "nan": cr.Sparse([7, 9], [NAN, NAN]),
    "inf": cr.Sparse([7, 9], [INF, -INF]),
    "zero": cr.Sparse([7, 9], [0.0, 0.0]),
    "negative": cr.Sparse([7, 7], [0.5, -0.7]),
    "overflow": cr.Sparse([7, 7], np.array([6e4, 6e4], np.float16)),
    "of nan": cr.candidates(np.full(20, NAN), top_k=4),
    "of -inf": cr.candidates(np.full(20, -INF), top_p=0.5),
}


@pytest.mark.parametrize("bad", BAD_LISTS.values(), ids=BAD_LISTS)
@pytest.mark.parametrize("walk", ["token", "block"])
@pytest.mark.parametrize("token", [-1, -2, 0, 5, 9, 10**12])
def test_a_list_with_nothing_usable_emits_token_0(bad: cr.Sparse, walk: str, token: int) -> None:
    target = _repeated(bad, 2)
    v = cr.verify(None, target, [token], cr.Lossless(), seeds=1, steps=0, policy="safe", walk=walk)
    emitted = v.token_ids[: int(v.num_accepted) + 1]
    np.testing.assert_array_equal(emitted, 0)
    assert all(cr.Status.TARGET_REPAIRED in cr.Status(int(s)) for s in v.status[: len(emitted)])
    # Only a token 0 that the block walk was given may be kept.
    assert v.num_accepted == 0 or (walk == "block" and token == 0)
    if token != -1:
        a = cr.accept(None, bad, token, rule=cr.Lossless(), policy="safe")
        assert a.sample(np.random.default_rng(0))[1] == 0
    with pytest.raises(ValueError, match=r"target_probs\[0(, \d+)?\]|outside the vocabulary"):
        cr.verify(None, target, [token], cr.Lossless(), seeds=1, steps=0)


def test_a_bad_list_emits_the_largest_usable_entry() -> None:
    target = _repeated(cr.Sparse([7, 3, 9], [NAN, 0.2, 0.6]), 2)
    v = cr.verify(None, target, [5], cr.Lossless(), seeds=1, steps=0, policy="safe")
    np.testing.assert_array_equal(v.token_ids, [9, -1])


def test_sizes_and_ids_that_make_no_rows_are_refused() -> None:
    for call, text in (
        (lambda: cr.Sparse([5, -3], [0.5, 0.5]), "ids must be >= 0, or -1 for padding, got -3"),
        (lambda: cr.Sparse([[1], [1, 2]], [[1.0]]), "Sparse: ids must be an array, or nested"),
        (lambda: cr.Sparse([7], [1.0]).dense(5), r"vocabulary_size must be an integer >= 8.*got 5"),
        (lambda: cr.Sparse([-1], [1.0]).dense(-1), "vocabulary_size must be an integer >= 0"),
        (lambda: cr.Sparse([7], [1.0]).dense(9.5), r"vocabulary_size must .* got 9\.5"),
        (lambda: cr.Sparse.from_dense(0.5), r"rows must hold floats \(\.\.\., V\), got float64 of"),
        (lambda: cr.Sparse.from_dense(None), "rows must hold floats"),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_errors_name_what_is_wrong() -> None:
    ids, probs = np.array([1, 2]), np.array([0.5, 0.5])
    with pytest.raises(ValueError, match=r"ids \(2,\) and probs \(1,\) must have one shape"):
        cr.Sparse(ids, probs[:1])
    with pytest.raises(ValueError, match="ids must be integers and probs floats, got float64"):
        cr.Sparse(probs, probs)
    with pytest.raises(ValueError, match=r"both be Sparse or both .*dense: use Sparse\.from_dense"):
        cr.accept(probs, cr.Sparse(ids, probs), 1, 0.1)
    # Errors speak of tokens, not of columns.
    listed = cr.Sparse(np.array([50, 90]), probs)
    with pytest.raises(ValueError, match="token 90 has probability 0 in p"):
        cr.accept(cr.Sparse(np.array([50, 60]), probs), listed, 90, 0.1)
    with pytest.raises(ValueError, match=r"q\[90\] is nan"):
        cr.accept(listed, cr.Sparse(np.array([50, 90]), np.array([0.5, np.nan])), 90, 0.1)
    with pytest.raises(ValueError, match="token is -4, outside the vocabulary"):
        cr.accept(listed, listed, -4, 0.1)
    rows = cr.Sparse(np.array([[50, 90]] * 2), np.array([[0.5, 0.5]] * 2))
    draft = cr.Sparse(np.array([[50, 60]]), np.array([[0.5, 0.5]]))
    with pytest.raises(ValueError, match=r"token 90 has probability 0 in draft_probs\[0\]"):
        cr.verify(draft, rows, [90], cr.Lossless(), uniforms=np.zeros((2, 2)))
