"""Counts, rates and the identities between them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import Kind

import cactus_rules as cr

Draft = tuple[int, int]
"""Drafted and accepted tokens of one verification."""

DRAFTS = st.lists(
    st.integers(0, 5).flatmap(lambda n: st.integers(0, n).map(lambda a: (n, a))), max_size=6
)


def _verification(drafts: list[Draft]) -> cr.Verification:
    """A batch with the given outcomes, from rows in which tokens 1 are kept and 0 rejected."""
    k = max([n for n, _ in drafts], default=0)
    token = np.full((len(drafts), k), -1)
    for i, (n, a) in enumerate(drafts):
        token[i, :a], token[i, a:n] = 1, 0
    q = np.broadcast_to([0.0, 0.5, 0.5], (len(drafts), k + 1, 3))
    p = np.broadcast_to([0.5, 0.5, 0.0], (len(drafts), k, 3))
    return cr.verify(p, q, token, cr.Lossless(), uniforms=np.zeros((len(drafts), k + 1, 2)))


@given(DRAFTS)
def test_identities(drafts: list[Draft]) -> None:
    metrics = cr.Metrics()
    metrics.add(_verification(drafts))
    drafted, accepted = (sum(column) for column in zip(*drafts, strict=True)) if drafts else (0, 0)
    with_draft = [a for n, a in drafts if n > 0]
    assert metrics.num_target_calls == len(drafts)
    assert metrics.num_drafts == len(with_draft)
    assert metrics.num_draft_tokens == drafted
    assert metrics.num_accepted_tokens == accepted
    assert metrics.num_emitted_tokens == accepted + len(drafts)
    per_position = metrics.num_accepted_tokens_per_pos
    assert sum(per_position) == accepted
    assert per_position == sorted(per_position, reverse=True)
    assert sum(metrics.acceptance_histogram) == len(with_draft)
    assert sum(k * count for k, count in enumerate(metrics.acceptance_histogram)) == accepted
    if with_draft:
        # A rejection tests one token more than was accepted.
        rejected = sum(kept < length for length, kept in drafts)
        assert metrics.tested_acceptance_rate == accepted / (accepted + rejected)
        assert 0 <= metrics.draft_acceptance_rate <= 1
        # Mean length = 1 + sum over k of P(accepted >= k).
        tail = sum(count / len(with_draft) for count in per_position)
        assert metrics.mean_acceptance_length == pytest.approx(1 + tail)


@settings(max_examples=20)
@given(DRAFTS, DRAFTS)
def test_counting_is_additive(first: list[Draft], second: list[Draft]) -> None:
    apart, together = cr.Metrics(), cr.Metrics()
    for drafts in (first, second):
        apart.add(_verification(drafts))
    for draft in first + second:
        together.add(_verification([draft]))
    _assert_close(apart, together)


def test_a_request_of_a_batch_is_counted_alone() -> None:
    batch = _verification([(3, 1), (2, 2), (0, 0)])
    metrics = cr.Metrics()
    metrics.add(batch[1])
    assert (metrics.num_draft_tokens, metrics.num_accepted_tokens) == (2, 2)
    assert metrics.acceptance_histogram == [0, 0, 1]
    assert metrics.mean_acceptance_length == 3.0


def test_nothing_counted_yet() -> None:
    metrics = cr.Metrics()
    assert np.isnan(metrics.draft_acceptance_rate)
    assert np.isnan(metrics.tested_acceptance_rate)
    assert metrics.mean_acceptance_length == 1.0
    assert metrics.num_accepted_tokens_per_pos == []
    assert metrics.as_dict()["draft_acceptance_rate"] is None
    assert metrics.kl_spent == metrics.tv_spent == 0.0


def test_names_are_those_of_vllm_and_ours_and_go_into_json() -> None:
    metrics = cr.Metrics()
    metrics.add(_verification([(3, 1), (2, 2)]))
    loaded = json.loads(json.dumps(metrics.as_dict()))
    assert loaded == metrics.as_dict()
    assert {
        "num_drafts",
        "num_draft_tokens",
        "num_accepted_tokens",
        "num_accepted_tokens_per_pos",
        "mean_acceptance_length",
        "draft_acceptance_rate",
        "acceptance_histogram",
        "kl_spent",
        "tv_spent",
        "one_hot_fallbacks",
        "targets_repaired",
    } <= loaded.keys()


def test_one_hot_fallbacks_are_counted() -> None:
    q = np.full((2, 3, 4), 0.25)
    p = np.array([[[np.nan] * 4, [0.25] * 4]] * 2)
    u = np.zeros((2, 3, 2))
    v = cr.verify(p, q, [[1, 2], [1, 2]], cr.Lossless(), uniforms=u, policy="safe")
    metrics = cr.Metrics()
    metrics.add(v)
    assert metrics.one_hot_fallbacks == 2


def test_repaired_targets_are_counted_where_they_were_looked_at() -> None:
    good, bad = [0.25] * 4, [np.nan] * 4
    q = np.array([[good, bad, bad], [bad, bad, bad], [good, good, good]])
    p = np.full((3, 2, 4), 0.25)
    u = np.zeros((3, 3, 2))
    metrics = cr.Metrics()
    metrics.add(cr.verify(p, q, [[1, 2]] * 3, cr.Lossless(), uniforms=u, policy="safe"))
    assert metrics.targets_repaired == metrics.as_dict()["targets_repaired"] == 2
    assert metrics.one_hot_fallbacks == 0


def test_a_record_starts_at_zero() -> None:
    with pytest.raises(TypeError):
        cr.Metrics(1)  # type: ignore[call-arg]


def test_once_unmetered_is_never_metered() -> None:
    metrics = cr.Metrics()
    q, p = np.full((2, 3), 1 / 3), np.full((1, 3), 1 / 3)
    rng = np.random.default_rng(0)
    for rule in (cr.Lossless(), cr.TopK(1), cr.Lossless()):
        metrics.add(cr.verify(p, q, [0], rule, rng=rng))
    assert metrics.kl_spent is None
    assert metrics.tv_spent is None


def test_every_kind_is_counted(kind: Kind) -> None:
    rng = np.random.default_rng(0)
    q, p = rng.dirichlet(np.ones(5), (6, 4)), rng.dirichlet(np.ones(5), (6, 3))
    token = rng.integers(-1, 5, (6, 3))
    u = rng.random((6, 4, 2))
    expected, got = cr.Metrics(), cr.Metrics()
    expected.add(cr.verify(p, q, token, cr.Cactus(0.1), uniforms=u))
    arrays = map(kind.make, (p, q, token))
    got.add(cr.verify(*arrays, cr.Cactus(0.1), uniforms=kind.make(u)))
    _assert_close(got, expected)


def _assert_close(left: cr.Metrics, right: cr.Metrics) -> None:
    for name, value in right.as_dict().items():
        assert left.as_dict()[name] == (value if value is None else pytest.approx(value)), name
