"""The same tokens on every array kind, for the same uniform numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import strategies
import tolerances
from kinds import Kind

import cactus_rules as cr

BATCH, K, V = 500, 3, 23


def _rows(dtype: str = "float64") -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Drafts of random length with rows near each other, some zeros, and uniforms."""
    rng = np.random.default_rng(7)
    logits = rng.normal(scale=2.0, size=(BATCH, K + 1, V))
    q = np.exp(logits)
    p = np.exp(logits[:, :K] + rng.normal(scale=0.7, size=(BATCH, K, V)))
    q[rng.random(q.shape) < 0.1] = 0.0
    p[rng.random(p.shape) < 0.1] = 0.0
    p, q = (rows / rows.sum(axis=-1, keepdims=True) for rows in (p, q))
    p, q = p.astype(dtype), q.astype(dtype)
    token = (p.cumsum(axis=-1) > rng.random((BATCH, K, 1)) * p.sum(axis=-1)[..., None]).argmax(-1)
    token[np.arange(K) >= rng.integers(0, K + 1, size=(BATCH, 1))] = -1
    return p, q, token, rng.random((BATCH, K + 1, 2))


def _verify(kind: Kind | None, rule: cr.Rule, u: np.ndarray, **options: Any) -> cr.Verification:
    p, q, token, _ = _rows(options.pop("dtype", "float64"))
    arrays = (p, q, token) if kind is None else (kind.make(p), kind.make(q), kind.make(token))
    uniforms = u if kind is None else kind.make(u)
    return cr.verify(*arrays, rule, uniforms=uniforms, policy="safe", **options)


@pytest.mark.parametrize("rule", strategies.EXAMPLES, ids=strategies.name_of)
def test_every_kind_emits_the_same_tokens(rule: cr.Rule, other_kind: Kind) -> None:
    u = _rows()[3]
    expected = _verify(None, rule, u)
    got = _verify(other_kind, rule, u)
    # A draw within rounding of a boundary moves when its uniform moves by as much: left out.
    steady = np.ones(BATCH, dtype=bool)
    for shift in (-tolerances.BOUNDARY, tolerances.BOUNDARY):
        moved = _verify(None, rule, np.clip(u + shift, 0, 1 - 2.0**-53))
        steady &= np.all(moved.token_ids == expected.token_ids, axis=-1)
    left_out = int((~steady).sum())
    assert left_out <= tolerances.BOUNDARY_SHARE * BATCH
    for name in ("token_ids", "num_accepted", "num_draft_tokens", "status"):
        left, right = getattr(expected, name), other_kind.back(getattr(got, name))
        np.testing.assert_array_equal(right[steady], left[steady], err_msg=name)
    for name in ("logprobs", "kl_spent", "tv_spent"):
        left, right = getattr(expected, name), getattr(got, name)
        assert (left is None) == (right is None)
        if left is not None:
            right = other_kind.back(right)
            slack = 1e-8 if rule.reads == "rows" else 1e-12
            np.testing.assert_allclose(right[steady], left[steady], rtol=slack, atol=slack)


@pytest.mark.parametrize("rule", [r for r in strategies.EXAMPLES if r.fixed_law][::3], ids=repr)
def test_every_kind_walks_blocks_alike(rule: cr.Rule, other_kind: Kind) -> None:
    u = _rows()[3]
    expected = _verify(None, rule, u, walk="block").token_ids
    got = other_kind.back(_verify(other_kind, rule, u, walk="block").token_ids)
    differing = int(np.any(got != expected, axis=-1).sum())
    assert differing <= tolerances.BOUNDARY_SHARE * BATCH


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrow_rows_emit_the_same_tokens_on_torch(dtype: str, other_kind: Kind) -> None:
    if other_kind.name != "torch":
        pytest.skip("float16 and float32 rows are tested on torch, the kind that has them")
    u = _rows()[3]
    for rule in (cr.Lossless(), cr.Cactus(0.1), cr.Mentored(0.1), cr.Nucleus(0.7)):
        expected = _verify(None, rule, u, dtype=dtype).token_ids
        got = other_kind.back(_verify(other_kind, rule, u, dtype=dtype).token_ids)
        differing = int(np.any(got != expected, axis=-1).sum())
        assert differing <= tolerances.BOUNDARY_SHARE * BATCH


def test_results_are_arrays_of_the_kind_that_came_in(kind: Kind) -> None:
    p, q, token, u = (array[:3] for array in _rows())
    v = cr.verify(*map(kind.make, (p, q, token)), cr.Cactus(0.1), uniforms=kind.make(u))
    expected = type(kind.make(u)) if not kind.is_numpy else np.ndarray
    for name in ("token_ids", "num_accepted", "logprobs", "status", "kl_spent", "tv_spent"):
        assert isinstance(getattr(v, name), expected), name
    assert kind.back(v.token_ids).dtype == kind.back(v.num_accepted).dtype == np.int64
    assert kind.back(v.logprobs).dtype == np.float64


PER_REQUEST: list[tuple[type, dict[str, list[Any]]]] = [
    (cr.Cactus, {"delta": [0.0, 0.1, 2.0]}),
    (cr.Mentored, {"delta": [0.0, 0.1, 2.0]}),
    (cr.Band, {"width": [0.0, 0.3, 2.0]}),
    (cr.Lenience, {"factor": [1.0, 1.5, 4.0]}),
    (cr.Ensemble, {"weight": [1.0, 0.6, 0.0]}),
    (cr.ReducibleFuzzy, {"threshold": [0.0, 0.05, 1.0]}),
    (cr.Typical, {"epsilon": [0.05, 0.2, 0.5], "alpha": [0.3, 0.6, 0.9]}),
    (cr.Threshold, {"acc": [1.0, 0.5, 0.2], "single": [0.2, 0.9, 1.0]}),
    (cr.TopK, {"k": [1, 3, 9]}),
    (cr.Nucleus, {"mass": [0.2, 0.6, 1.0]}),
    (cr.MinP, {"ratio": [0.0, 0.2, 1.0]}),
    (cr.RelaxedTopN, {"n": [1, 3, 9], "gap": [0.0, 0.1, 0.5]}),
]


@pytest.mark.parametrize("given_as", ["list", "numpy", "kind"])
@pytest.mark.parametrize(("rule", "values"), PER_REQUEST, ids=lambda x: getattr(x, "name", None))
def test_one_parameter_per_request_is_a_loop(
    rule: Any, values: dict[str, list[Any]], given_as: str, kind: Kind
) -> None:
    p, q, token, u = (array[:3] for array in _rows())
    make = {"list": list, "numpy": np.array, "kind": lambda x: kind.make(np.array(x))}[given_as]
    many = rule(**{name: make(column) for name, column in values.items()})
    rows = [kind.make(array) for array in (p, q, token)]
    v = cr.verify(*rows, many, uniforms=kind.make(u))
    a = cr.accept(rows[0][:, 0, :], rows[1][:, 0, :], kind.make(np.argmax(p[:, 0], -1)), rule=many)
    law = cr.output_law(p[:, 0], q[:, 0], rule(**values))
    for i in range(3):
        single = rule(**{name: column[i] for name, column in values.items()})
        one = cr.verify(p[i], q[i], token[i], single, uniforms=u[i])
        np.testing.assert_array_equal(kind.back(v.token_ids)[i], one.token_ids)
        alone = cr.accept(p[i, 0], q[i, 0], int(np.argmax(p[i, 0])), rule=single)
        np.testing.assert_allclose(kind.back(a.cap)[i], alone.cap, rtol=1e-9)
        np.testing.assert_array_equal(law[i], cr.output_law(p[i, 0], q[i, 0], single))
    assert "per request" in str(many.guarantee) or "none" in str(many.guarantee)
