"""Errors of the strict policy and of wrong calls: argument, value and remedy, as exact texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from kinds import Kind

import cactus_rules as cr

P, Q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
U = np.full((2, 2), 0.5)


def _accept(p: Any = P, q: Any = Q, token: Any = 0, **options: Any) -> Callable[[], Any]:
    return lambda: cr.accept(np.array(p), np.array(q), token, **({"delta": 0.1} | options))


def _verify(p: Any = P, q: Any = Q, token: Any = (0,), **options: Any) -> Callable[[], Any]:
    draft, target = np.array([p]), np.array([q, Q])
    return lambda: cr.verify(draft, target, token, cr.Lossless(), **({"uniforms": U} | options))


def _rows(**options: Any) -> Callable[[], Any]:
    return _accept(**({"p": [P, P], "q": [Q, Q], "token": 0} | options))


def _batch(rule: cr.Rule | None = None, **options: Any) -> Callable[[], Any]:
    draft, target = np.tile(P, (2, 1, 1)), np.tile(Q, (2, 2, 1))
    if not options.keys() & {"rng", "seeds"}:
        options["rng"] = np.random.default_rng(0)
    return lambda: cr.verify(draft, target, [[0], [0]], rule or cr.Lossless(), **options)


def _priced() -> cr.Rule:
    """A rule with one value per position, for a draft of two tokens."""
    return cr.Budgeted(1.0, 4).rule(np.stack([P, P]), np.stack([Q] * 3))


REMEDY = "probabilities must be finite and >= 0; pass softmax outputs, not logits, or policy='safe'"

BAD_DATA: list[tuple[Callable[[], Any], str]] = [
    (_accept(p=[0.5, np.nan, 0.5]), f"p[1] is nan: {REMEDY} to have bad rows repaired"),
    (_accept(q=[0.5, 1.0, -0.5]), f"q[2] is -0.5: {REMEDY}"),
    (_accept(q=[np.inf, 0.0, 0.0]), f"q[0] is inf: {REMEDY}"),
    (
        _accept(p=[0.5, 0.3, 0.3]),
        "p sums to 1.1, off 1 by more than float64 explains: renormalise it (p and q are the "
        "draft's and the target's probabilities after all sampling filters)",
    ),
    (_accept(q=[0.0, 0.0, 0.0]), "q sums to 0, off 1 by more than float64 explains: renormalise"),
    (
        _accept(p=[0.0, 0.5, 0.5]),
        "token 0 has probability 0 in p, so it was not drawn from it: pass the row that the token "
        "was sampled from (p is the draft, q the target; check the order), or None for a one-hot",
    ),
    (
        _accept(token=3),
        "token is 3, outside the vocabulary of 3 tokens: give one drafted token per row, an id "
        "that the target has; verify takes drafts that end early",
    ),
    (_accept(token=-1), "token is -1, outside the vocabulary of 3 tokens: give one drafted token"),
    (
        _accept(q=[0.2, 0.3, 0.5000001]),
        "q sums to 1.0000001, off 1 by more than float64 explains: a softmax in float32 does that; "
        "divide the rows by their sums in float64, or keep them in float32",
    ),
    (
        _accept(p=[P, P], q=[Q, [0.5, np.nan, 0.5]], token=[0, 0]),
        "q[1, 1] is nan: probabilities must be finite",
    ),
    (_accept(p=[P, P * 2], q=[Q, Q], token=[0, 0]), "p[1] sums to 2, off 1 by more than float64"),
    (_verify(p=[0.5, np.nan, 0.5]), f"draft_probs[0, 1] is nan: {REMEDY}"),
    (_verify(q=[0.5, 0.7, -0.2]), f"target_probs[0, 2] is -0.2: {REMEDY}"),
    (_verify(q=[0.5, 0.1, 0.1]), "target_probs[0] sums to 0.7, off 1 by more than float64"),
    (_verify(p=[0.0, 0.5, 0.5]), "token 0 has probability 0 in draft_probs[0], so it was not"),
    (_verify(token=[5]), "draft_token_ids[0] is 5, outside the vocabulary of 3 tokens: pad short"),
    (_verify(token=[-2]), "draft_token_ids[0] is -2, outside the vocabulary of 3 tokens: pad"),
    (_verify(uniforms=U + 0.5), "uniforms must be in [0, 1): draw them with rng.random()"),
    (_verify(uniforms=U * np.nan), "uniforms must be in [0, 1): draw them with rng.random()"),
]


@pytest.mark.parametrize(("call", "text"), BAD_DATA, ids=[text[:40] for _, text in BAD_DATA])
def test_bad_data_is_named_with_its_value_and_the_remedy(
    call: Callable[[], Any], text: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


WRONG_CALLS: list[tuple[Callable[[], Any], str]] = [
    (
        _accept(p=[0.5, 0.5]),
        "p (2,) and q (3,) must have the same last axis, the vocabulary: pad the shorter",
    ),
    (lambda: cr.accept(P, np.float64(1.0), 0, 0.1), "p (3,) and q () must have the same last axis"),
    (_accept(token=0.5), "token must hold integers, got dtype float64"),
    (_accept(p=[1, 0, 0]), "p must hold floats (probabilities), got dtype int64"),
    (_accept(q=[True, False, False]), "q must hold floats (probabilities), got dtype bool"),
    (
        _accept(p=[P] * 2, q=[Q] * 2, token=[0, 0, 0]),
        "token (3,) does not fit p (2, 3): give one token per row, (2,)",
    ),
    (
        _accept(delta=cr.Lossless()),
        "delta is a budget, got Lossless(): give a rule as rule=",
    ),
    (_accept(policy="lax"), "policy must be 'strict' or 'safe', got 'lax'"),
    (_accept(delta=-0.1), "Cactus: delta must be a number or an array of numbers >= 0, got -0.1"),
    (_verify(policy="lax"), "policy must be 'strict' or 'safe', got 'lax'"),
    (_verify(token=[0.5]), "draft_token_ids must be integers (..., K), got float64 (1,)"),
    (_verify(token=0), "draft_token_ids must be integers (..., K), got int64 ()"),
    (_verify(token=[0, 1]), "target_probs (2, 3) must be (..., K+1, V)"),
    (_verify(p=[0.5, 0.5]), "draft_probs (1, 2) must be (..., K, V) = (1, 3): pad the smaller"),
    (_verify(p=[1, 0, 0]), "draft_probs must hold floats (probabilities), got dtype int64"),
    (_verify(uniforms=U[:1]), "uniforms must have shape (..., K+1, 2) = (2, 2), got (1, 2)"),
    (_verify(uniforms=None), "give exactly one of uniforms=, rng=, or seeds= with steps="),
    (_verify(seeds=1, steps=1), "give exactly one of uniforms=, rng=, or seeds= with steps="),
    (_verify(steps=1), "seeds and steps go together: a request's seed and its target call's"),
    (_verify(uniforms=None, seeds=1), "seeds and steps go together"),
    (
        _verify(uniforms=None, seeds=0.5, steps=1),
        "seeds must hold integers, got dtype float64: one per request",
    ),
    (
        _verify(uniforms=None, seeds=1, steps=0.5),
        "steps must hold integers, got dtype float64: one per request",
    ),
    (
        _verify(uniforms=None, seeds=[1, 2, 3], steps=0),
        "seeds (3,) does not fit the requests (): give one number",
    ),
    (
        _batch(seeds=[1, 2, 3], steps=0),
        "seeds (3,) does not fit the requests (2,): give one value per request, (2,), or one "
        "number for all",
    ),
    (_batch(seeds=1, steps=[1, 2, 3]), "steps (3,) does not fit the requests (2,)"),
    (
        _batch(cr.Cactus([0.1, 0.2, 0.3])),
        "Cactus: delta (3,) does not fit the requests (2,): give one value per request, (2,), or",
    ),
    (_batch(cr.Mentored(np.full((2, 1), 0.1))), "Mentored: delta (2, 1) does not fit the requests"),
    (
        _batch(cr.Mentored([0.1, 0.2, 0.3]), walk="block"),
        "Mentored: delta (3,) does not fit the requests (2,): give one value per request",
    ),
    (
        lambda: cr.verify([P], [Q, Q], [0], _priced(), uniforms=U),
        "Priced: upper (2,) does not fit the positions (1,): give one value per position",
    ),
    (_batch(rng=5), "rng must be a numpy generator, got 5: pass np.random.default_rng(seed)"),
    (lambda: _accept()().sample(5), "rng must be a numpy generator, got 5: pass np.random"),
    (
        lambda: _rows(token=[0, 1])().decide(np.full(3, 0.5)),
        "u (3,) does not fit the tokens (2,): give one per token",
    ),
    (lambda: _accept()().decide("half"), "u must hold numbers in [0, 1), got dtype <U4"),
    (
        _rows(delta=[0.1, 0.2, 0.3]),
        "Cactus: delta (3,) does not fit the rows (2,): give one value per row, (2,), or one "
        "number for all",
    ),
    (_accept(delta=[0.1, 0.2]), "Cactus: delta (2,) does not fit the rows (): give one number"),
    (_rows(delta=None, rule=cr.TopK([1, 2, 3])), "TopK: k (3,) does not fit the rows (2,)"),
    (_accept(delta=["much"]), "Cactus: delta must be a number or an array of numbers >= 0, got ["),
    (_accept(delta=[[0.1], [0.1, 0.2]]), "Cactus: delta must be a number or an array of numbers"),
    (
        lambda: cr.accept(np.stack([P, P]), np.stack([Q] * 3), 0, 0.1),
        "q (3, 3) does not fit the rows of p: give one q per p",
    ),
    (
        lambda: cr.accept(P, None, 0, 0.1),
        "p and q must be rows of probabilities (..., V), arrays of one library or nested lists, "
        "got ndarray and NoneType; only p may be None (one-hot drafts)",
    ),
    (
        lambda: cr.accept([[0.5, 0.5], [1.0]], Q, 0, 0.1),
        "p must be an array, or nested lists whose rows are of one length, got [[0.5, 0.5], [1.0]]",
    ),
    (
        lambda: cr.verify(None, None, [0], cr.Lossless(), uniforms=U),
        "draft_probs and target_probs must be rows of probabilities (..., V), arrays of one",
    ),
    (_verify(token=[[0], [0, 1]]), "draft_token_ids must be an array, or nested lists whose rows"),
    (
        lambda: cr.boost(np.array([0.1, 0.2]), np.array([0.1, 0.2, 0.3])),
        "q_n (2,) and delta (3,) do not broadcast: give one delta per q_n",
    ),
    (
        lambda: cr.boost(None, 0.1),
        "q_n and delta must be numbers, or arrays of one library, got None and 0.1",
    ),
    (
        lambda: cr.boost("x", 0.1),
        "q_n and delta must be numbers, or arrays of one library, got 'x'",
    ),
    (lambda: cr.boost(0.1, None), "arrays of one library, got 0.1 and None"),
    (lambda: cr.boost([[0.1], [0.1, 0.2]], 0.1), "q_n must be an array, or nested lists whose"),
    (
        lambda: cr.Metrics().add(None),  # type: ignore[arg-type]
        "verification must be what verify(...) returned, got NoneType",
    ),
    (lambda: cr.Metrics().add(_accept()()), "returned, got Acceptance: `accept` decides on single"),
]


@pytest.mark.parametrize(("call", "text"), WRONG_CALLS, ids=[text[:40] for _, text in WRONG_CALLS])
def test_wrong_calls_are_refused_under_both_policies(call: Callable[[], Any], text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        call()


def test_nested_lists_are_rows() -> None:
    p, q = P.tolist(), Q.tolist()
    assert float(cr.accept(p, q, 0, 0.1).cap) == float(cr.accept(P, Q, 0, 0.1).cap)
    assert float(cr.accept(None, q, 0, 0.1).cap) == float(cr.accept(None, Q, 0, 0.1).cap)
    given = cr.verify([p], [q, q], [0], cr.Lossless(), uniforms=U)
    arrays = cr.verify(P[None], np.stack([Q, Q]), [0], cr.Lossless(), uniforms=U)
    np.testing.assert_array_equal(given.token_ids, arrays.token_ids)
    assert float(cr.audit(p, q, cr.Cactus(0.1)).kl) == float(cr.audit(P, Q, cr.Cactus(0.1)).kl)
    np.testing.assert_array_equal(cr.boost(q, [0.1]), cr.boost(Q, 0.1))
    np.testing.assert_array_equal(cr.warp(q), cr.warp(Q))
    np.testing.assert_array_equal(cr.warp([1, 2]), cr.warp(np.array([1.0, 2.0])))
    np.testing.assert_array_equal(cr.candidates([q, q], top_k=2).ids, [[1, 2]] * 2)
    assert cr.draw(q, 0.4) == cr.draw(Q, 0.4) == 1


def test_lists_beside_arrays_become_arrays_of_their_kind(kind: Kind) -> None:
    for p, q in ((P.tolist(), kind.make(Q)), (kind.make(P), Q.tolist())):
        a = cr.accept(p, q, 0, 0.1)
        assert type(a.cap) is type(cr.accept(kind.make(P), kind.make(Q), 0, 0.1).cap)
        assert float(a.cap) == float(cr.accept(P, Q, 0, 0.1).cap)


@pytest.mark.parametrize(
    "p", [np.array([0.5, 0.5]), np.array(0.5), P[None]], ids=["width", "scalar", "axes"]
)
def test_output_law_and_audit_need_rows_of_one_shape(p: np.ndarray) -> None:
    for call in (cr.output_law, cr.audit):
        with pytest.raises(ValueError, match=r"must (have one shape|be rows) \(\.\.\., V\)"):
            call(p, Q, cr.Lossless())


LISTED = cr.Sparse(np.arange(3), P)

NOT_ANALYSED: list[tuple[tuple[Any, Any, Any], str]] = [
    (
        (np.array([0.5, 0.6]), Q, cr.Lossless()),
        "p (2,) and q (3,) must have one shape (..., V): pad the smaller vocabulary with zeros",
    ),
    (
        (LISTED, LISTED, cr.Lossless()),
        "p is Sparse, but the output law is one over the whole vocabulary: pass "
        "p.dense(vocabulary_size)",
    ),
    ((P, LISTED, cr.Lossless()), "q is Sparse, but the output law is one over the whole"),
    (
        (None, Q, cr.Lossless()),
        "p must be rows (..., V), an array or nested lists of one length, got None: one_hot=True "
        "needs the law that tokens are drawn from too",
    ),
    (([[0.5], [0.5, 0.5]], Q, cr.Lossless()), "p must be rows (..., V), an array or nested lists"),
    ((P, Q, cr.Lossless), "rule must be a rule such as Lossless() or Mentored(0.1), got <class"),
    (
        (np.stack([P, P]), np.stack([Q, Q]), cr.Cactus([0.1, 0.2, 0.3])),
        "Cactus: delta (3,) does not fit the rows (2,): give one value per row, (2,), or one",
    ),
    ((P, Q, cr.Mentored([0.1, 0.2])), "Mentored: delta (2,) does not fit the rows (): give one"),
]


@pytest.mark.parametrize(("given", "text"), NOT_ANALYSED, ids=[t[:40] for _, t in NOT_ANALYSED])
def test_output_law_and_audit_name_what_does_not_fit(
    given: tuple[Any, Any, Any], text: str
) -> None:
    for call in (cr.output_law, cr.audit):
        with pytest.raises(ValueError, match=re.escape(text)):
            call(*given)


def test_output_law_refuses_rows_that_are_no_laws() -> None:
    # They take no policy, so that their errors advise none.
    with pytest.raises(ValueError, match=r"p\[1\] is nan: .*pass softmax outputs, not logits$"):
        cr.output_law(np.array([0.5, np.nan]), np.array([0.5, 0.5]), cr.Lossless())
    with pytest.raises(ValueError, match=r"q sums to 1\.5"):
        cr.audit(np.array([0.5, 0.5]), np.array([0.5, 1.0]), cr.Lossless())


@pytest.mark.parametrize(
    ("row", "u", "text"),
    [
        ([0.5, 0.5], 1.0, r"u must be in \[0, 1\), got 1\.0: pass a fresh uniform number"),
        ([0.5, 0.5], np.nan, r"u must be in \[0, 1\), got nan"),
        ([0.0, 0.0], 0.5, "row must be finite, non-negative and have mass: nothing to draw from"),
        ([np.nan, 1.0], 0.5, "row must be finite, non-negative and have mass"),
        ([-0.5, 1.0], 0.5, "row must be finite, non-negative and have mass"),
    ],
)
def test_draw_needs_a_row_with_mass_and_a_uniform(row: list[float], u: float, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        cr.draw(np.array(row), u)


@pytest.mark.parametrize("row", [None, 0.5, [[0.5, 0.5]], LISTED.dense(3)[None]], ids=str)
def test_draw_needs_one_row(row: Any) -> None:
    with pytest.raises(ValueError, match=r"row must be one row \(V,\) of probabilities"):
        cr.draw(row, 0.5)


def test_strict_is_the_default_for_numpy_and_safe_for_other_kinds(kind: Kind) -> None:
    p, q = np.array([0.5, 0.5, np.nan]), np.array([0.5, 0.5, 0.0])
    rows = kind.make(p[None]), kind.make(np.stack([q, q])), kind.make(np.array([0]))

    def accept(policy: str | None) -> None:
        cr.accept(kind.make(p), kind.make(q), rows[2][0], 0.1, policy=policy)

    def verify(policy: str | None) -> None:
        cr.verify(*rows, cr.Lossless(), rng=np.random.default_rng(0), policy=policy)

    for call in (accept, verify):
        call("safe")
        for policy in ("strict", None) if kind.is_numpy else ("strict",):
            with pytest.raises(ValueError, match="is nan"):
                call(policy)
        if not kind.is_numpy:
            call(None)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("width", [3, 1000, 50000])
def test_strict_accepts_what_the_dtype_explains_and_no_more(dtype: str, width: int) -> None:
    rng = np.random.default_rng(0)
    # A softmax in float32, whatever narrower dtype its result is stored in.
    computed = "float64" if dtype == "float64" else "float32"
    row = np.exp(rng.normal(scale=2.0, size=width).astype(computed))
    row = (row / row.sum(dtype=computed)).astype(dtype)
    n = int(np.argmax(row))
    cr.accept(row, row, n, 0.1)
    for factor in (0.9, 1.1):
        off = np.minimum(row * np.array(factor, dtype=dtype), 1).astype(dtype)
        with pytest.raises(ValueError, match=f"off 1 by more than {dtype} explains"):
            cr.accept(row, off, n, 0.1)


def test_rows_past_the_first_pad_are_never_read() -> None:
    bad = np.full(3, np.nan)
    p, q = np.array([P, bad, -P]), np.array([Q, Q, bad, bad * np.inf])
    u = np.array([[0.0, 0.5]] * 4)
    for rule in (cr.Lossless(), cr.Mentored(0.1), cr.TopK(1), cr.Band(0.5)):
        for policy in ("strict", "safe"):
            v = cr.verify(p, q, [2, -1, 7], rule, uniforms=u, policy=policy)
            sane = cr.verify(P[None], np.array([Q, Q]), [2], rule, uniforms=u[:2])
            np.testing.assert_array_equal(v.token_ids, [*sane.token_ids, -1, -1])
            assert v.num_draft_tokens == 1
            np.testing.assert_array_equal(v.status, 0)
