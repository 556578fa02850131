"""Public failure reports of other implementations, as regression tests: one row each."""

from __future__ import annotations

from typing import Any

import chains
import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.testing import check_proposal, check_verifier

NAN = float("nan")
UNIFORM4 = [0.25] * 4


def verify(draft: Any, target: Any, ids: Any, rule: cr.Rule | None = None, **given: Any) -> Any:
    """`cr.verify` under the safe policy, lossless unless told otherwise."""
    draft = None if draft is None else np.array(draft, dtype=np.float64)
    if not given:
        given = {"rng": np.random.default_rng(0)}
    rule = rule or cr.Lossless()
    target = np.array(target, dtype=np.float64)
    return cr.verify(draft, target, np.array(ids), rule, policy="safe", **given)


@pytest.mark.parametrize("bad", [[NAN] * 4, [0.0] * 4, [NAN, 0.0, 0.0, 0.0]])
@pytest.mark.parametrize("rule", [cr.Lossless(), cr.Cactus(0.1), cr.Mentored(0.1), cr.Typical()])
def test_vllm_53029_a_bad_target_row_never_emits_an_id_outside(
    bad: list[float], rule: cr.Rule
) -> None:
    result = verify([UNIFORM4], [bad, UNIFORM4], [1], rule)
    assert result.num_accepted == 0
    assert 0 <= result.token_ids[0] < 4
    assert result.token_ids[1] == -1
    assert result.status[0] & cr.Status.TARGET_REPAIRED


def test_vllm_53029_the_finite_argmax_is_emitted() -> None:
    u = np.array([[0.95, 0.5], [0.5, 0.5]])
    result = verify([UNIFORM4], [[NAN, 0.2, 0.7, NAN], UNIFORM4], [1], uniforms=u)
    assert result.token_ids.tolist() == [2, -1]


def test_vllm_46533_pads_are_neither_read_nor_emitted() -> None:
    rows = np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [NAN] * 3, [NAN] * 3])
    u = np.full((4, 2), 0.5)
    u[0, 0] = 0.0
    for draw, expected in ((0.59, 0), (0.61, 1), (0.95, 2)):
        u[1, 1] = draw
        draft = [[0.2, 0.3, 0.5], [NAN] * 3, [NAN] * 3]
        result = verify(draft, rows, [2, -1, -1], uniforms=u)
        # The bonus token comes from row 1 of the target itself, without a residual.
        assert result.token_ids.tolist() == [2, expected, -1, -1]
        assert not result.status.any()


def test_vllm_41834_a_nan_draft_row_is_read_as_one_hot() -> None:
    q = [0.1, 0.2, 0.7]
    kept, drawn = np.zeros(3), np.zeros(3)
    for coin in (np.arange(200) + 0.5) / 200:
        u = np.array([[coin, 0.5], [0.5, 0.5]])
        result = verify([[NAN] * 3], [q, q], [1], uniforms=u)
        assert result.status[0] & cr.Status.DRAFT_REPAIRED
        target = kept if result.num_accepted else drawn
        target[result.token_ids[0]] += 1 / 200
    # Kept with probability q_n; never the token just rejected.
    assert kept.tolist() == pytest.approx([0, 0.2, 0])
    assert drawn[1] == 0


def _emitted(told: np.ndarray | None, really: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The law that comes out where tokens come from `really` and the verifier is told `told`."""
    law = np.zeros(len(q))
    for n in np.flatnonzero(really):
        asked = cr.accept(told, q, n, rule=cr.Lossless())
        law[n] += really[n] * asked.probability
        law += really[n] * (1 - asked.probability) * asked.residual()
    return law


def test_transformers_47932_a_proposal_after_top_k_is_noticed() -> None:
    p, q = np.array([0.4, 0.3, 0.2, 0.1]), np.array([0.3, 0.3, 0.2, 0.2])
    really = np.array([4 / 7, 3 / 7, 0, 0])
    assert np.abs(_emitted(p, really, q) - q).sum() / 2 == pytest.approx(0.257, abs=5e-4)
    assert _emitted(really, really, q) == pytest.approx(q, abs=1e-15)
    with pytest.raises(ValueError, match="pass the row that the token was sampled from"):
        cr.accept(really, q, 2, rule=cr.Lossless())
    tokens = np.random.default_rng(0).choice(4, size=500, p=really)
    assert not check_proposal(tokens, np.tile(p, (500, 1))).ok


def test_transformers_32867_an_argmax_draft_is_one_hot() -> None:
    softmax = q = np.array([0.5, 0.5])
    argmax = np.array([1.0, 0.0])
    assert np.abs(_emitted(softmax, argmax, q) - q).sum() / 2 == pytest.approx(0.5)
    assert _emitted(None, argmax, q) == pytest.approx(q, abs=1e-15)
    assert cr.output_law(argmax, q, cr.Lossless(), one_hot=True) == pytest.approx(q, abs=1e-15)


def test_sglang_35771_a_coin_of_zero_keeps_no_excluded_token() -> None:
    u = np.array([[0.0, 0.0], [0.0, 0.0]])
    for rule in (cr.Lossless(), cr.Cactus(5.0), cr.Typical(), cr.TopK(2), cr.Ensemble(0.1)):
        result = verify([[0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]], [0], rule, uniforms=u)
        assert result.token_ids.tolist() == [1, -1]


def test_vllm_ascend_13730_the_acceptance_rate_is_tested_not_only_the_law() -> None:
    p, q = np.array([0.9, 0.1]), np.array([0.1, 0.9])
    assert cr.audit(p, q, cr.Lossless()).acceptance_rate == pytest.approx(0.2, abs=1e-15)
    rng = np.random.default_rng(1)
    ids = rng.choice(2, size=(20_000, 1), p=p)
    rows = np.tile(q, (20_000, 2, 1))
    result = cr.verify(np.tile(p, (20_000, 1, 1)), rows, ids, cr.Lossless(), rng=rng)
    # Six standard errors.
    assert result.num_accepted.mean() == pytest.approx(0.2, abs=6 * 0.4 / np.sqrt(20_000))


def test_vllm_54282_draft_coin_and_draw_have_streams_of_their_own() -> None:
    seeds, steps = np.arange(3000), np.zeros(3000, np.int64)
    streams = [cr.uniforms(seeds, steps, 0, stream) for stream in cr.Stream]
    correlations = np.corrcoef(streams)[np.triu_indices(3, 1)]
    # Six standard errors of a correlation of independent samples.
    assert np.all(np.abs(correlations) < 6 / np.sqrt(3000))
    result = cr.verify(
        None, np.tile(UNIFORM4, (3000, 2, 1)), np.zeros((3000, 1), int), cr.Lossless(),
        seeds=seeds, steps=steps,
    )  # fmt: skip
    assert np.array_equal(result.num_accepted == 1, streams[cr.Stream.COIN] < 0.25)


def test_llama_cpp_candidate_lists_are_matched_by_id() -> None:
    target = cr.Sparse(np.array([1, 2, 3]), np.array([0.5, 0.3, 0.2]))
    draft = cr.Sparse(np.array([0, 1, 2]), np.array([0.6, 0.2, 0.2]))
    law = np.zeros(4)
    for token, p_n in ((0, 0.6), (1, 0.2), (2, 0.2)):
        asked = cr.accept(draft, target, token, rule=cr.Lossless())
        law[token] += p_n * asked.probability
        assert asked.ids is not None
        law[asked.ids] += p_n * (1 - asked.probability) * asked.residual()
    assert law == pytest.approx([0, 0.5, 0.3, 0.2], abs=1e-15)


def test_vllm_13196_a_request_is_the_same_in_any_slot_and_any_batch() -> None:
    rng = np.random.default_rng(2)
    draft = rng.dirichlet(np.ones(9), size=(5, 3))
    target = rng.dirichlet(np.ones(9), size=(5, 4))
    ids = rng.integers(0, 9, size=(5, 3))
    ids[3] = -1
    seeds, steps = np.array([5, 6, 7, 8, 9]), np.array([0, 3, 1, 4, 1])
    together = cr.verify(draft, target, ids, cr.Cactus(0.1), seeds=seeds, steps=steps)
    for order in (np.arange(5), np.arange(5)[::-1], np.array([2]), np.array([4, 3])):
        part = cr.verify(
            draft[order], target[order], ids[order], cr.Cactus(0.1),
            seeds=seeds[order], steps=steps[order],
        )  # fmt: skip
        assert np.array_equal(part.token_ids, together.token_ids[order])


def test_vllm_10198_nothing_outside_the_nucleus_is_emitted() -> None:
    logits = np.array([3.0, 2.0, 1.0, 0.0, -1.0])
    p, q = cr.warp(logits[::-1], top_p=0.95), cr.warp(logits, top_p=0.8)
    for rule in (cr.Lossless(), cr.Cactus(1.0), cr.Mentored(1.0), cr.Ensemble(0.5), cr.Typical()):
        law = cr.output_law(p, q, rule)
        assert law[q == 0].tolist() == [0.0] * int(np.sum(q == 0))
        assert law.sum() == pytest.approx(1.0, abs=1e-12)


def test_vllm_46560_rows_beyond_two_to_the_31_entries() -> None:
    # Overlapping rows, each one entry further: 2^31 entries and more in a little memory.
    rows, width = 2**13, 2**18 + 3
    rng = np.random.default_rng(0)
    memory = rng.random(rows + width, dtype=np.float32)
    target = np.lib.stride_tricks.as_strided(memory, (rows, width), (4, 4), writeable=False)
    assert target.size > 2**31
    ids = rng.integers(0, width, size=rows)
    ids[-2:] = 0, width - 1
    at = cr.accept(None, target, ids, rule=cr.Lossless(), policy="safe")
    np.testing.assert_array_equal(at.probability, memory[np.arange(rows) + ids])
    assert not at.status.any()


def test_vllm_46665_the_residual_survives_a_tiny_draft_probability() -> None:
    p, q = np.array([1e-9, 1 - 1e-9]), np.array([0.5, 0.5])
    asked = cr.accept(p, q, 1, rule=cr.Lossless())
    assert 1 - asked.probability == pytest.approx(1 - 0.5 / (1 - 1e-9), rel=1e-12)
    assert asked.residual().tolist() == [1.0, 0.0]
    p, q = np.array([1e-9, 2e-9, 1 - 3e-9]), np.array([0.5, 0.25, 0.25])
    weights = cr.accept(p, q, 2, rule=cr.Lossless()).residual()
    assert weights[0] / weights[1] == pytest.approx((0.5 - 1e-9) / (0.25 - 2e-9), rel=1e-12)
    assert cr.output_law(p, q, cr.Lossless()) == pytest.approx(q, rel=1e-12)


def test_transformers_28508_the_residual_is_renormalised_not_softmaxed() -> None:
    p, q = np.array([0.1, 0.7, 0.2]), np.array([0.4, 0.3, 0.3])
    asked = cr.accept(p, q, 1, rule=cr.Lossless())
    assert asked.residual() == pytest.approx([0.75, 0, 0.25], abs=1e-15)


def test_transformers_28508_tokens_after_a_rejection_are_not_accepted() -> None:
    q = [0.5, 0.5]
    u = np.array([[0.1, 0.5], [0.9, 0.5], [0.1, 0.5], [0.5, 0.5]])
    result = verify(None, [q] * 4, [0, 0, 0], uniforms=u)
    assert result.num_accepted == 1
    assert result.token_ids.tolist() == [0, 1, -1, -1]


def test_cactus_code_a_target_probability_above_one_by_rounding_is_kept() -> None:
    q_n = np.nextafter(np.float64(1), 2)
    q = np.array([q_n, 0.0])
    for solver in ("exact", "taylor", "closed"):
        asked = cr.accept(np.array([0.9, 0.1]), q, 0, rule=cr.Cactus(0.1, solver=solver))
        assert asked.probability == 1.0
        assert asked.cap == 1.0


def test_cactus_code_an_empty_residual_does_not_emit_token_zero() -> None:
    # p_1 is an ulp above q_1: a coin near 1 rejects, and q - p is positive nowhere.
    q, p = np.array([0.0, 0.3, 0.7]), np.array([0.0, np.nextafter(0.3, 1), 0.7])
    u = np.array([[1 - 2.0**-53, 0.0], [0.5, 0.5]])
    for rule in (cr.Lossless(), cr.Cactus(0.0), cr.Mentored(0.0)):
        result = verify([p], [q, q], [1], rule, uniforms=u)
        assert result.token_ids.tolist() == [2, -1]


def test_vllm_ascend_7807_block_verification_has_its_own_residual() -> None:
    p, q = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    for k in (1, 2, 3):
        # Exactly: the wrong residual is off by .159 from K = 2 on.
        laws = [q.tolist()] * (k + 1)
        rows = np.tile(p, (k, 1)), np.tile(q, (k + 1, 1))
        for walk in ("token", "block"):
            law, _ = chains.integrate(*rows, cr.Lossless(), walk=walk)
            assert chains.distance(chains.completed(law, laws), chains.product(laws)) < 1e-12


def test_the_library_passes_its_own_conformance_battery() -> None:
    def verifier(draft: Any, target: Any, ids: Any, uniforms: Any) -> Any:
        return cr.verify(draft, target, ids, cr.Lossless(), uniforms=uniforms)

    report = check_verifier(verifier, cr.Lossless())
    assert report.ok, report
