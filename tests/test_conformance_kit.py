"""The conformance kit passes right verifiers, and names what is wrong with planted wrong ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.testing import check_proposal, check_verifier, diagnosis
from cactus_rules.testing import proposal as proposals

RULES = [
    cr.Lossless(),
    cr.Cactus(0.1),
    cr.Mentored(0.1),
    cr.Lenience(1.4),
    cr.Ensemble(0.6),
    cr.TopK(2),
]


def verifier_of(rule: cr.Rule) -> Any:
    def verifier(draft: Any, target: Any, ids: Any, uniforms: Any = None) -> Any:
        if uniforms is None:
            return cr.verify(draft, target, ids, rule, rng=np.random.default_rng(5))
        return cr.verify(draft, target, ids, rule, uniforms=uniforms)

    return verifier


def wrong(mistake: str) -> Any:
    """A scalar lossless verifier with one mistake."""

    def verifier(draft: Any, target: Any, ids: Any, uniforms: Any = None) -> np.ndarray:
        if uniforms is None:
            uniforms = np.random.default_rng(3).random((*target.shape[:2], 2))
        out = np.full(target.shape[:2], -1)
        for b in range(len(ids)):
            out[b] = one(draft[b], target[b], ids[b], uniforms[b])
        return out

    def one(draft: Any, target: Any, ids: Any, u: Any) -> np.ndarray:
        out = np.full(len(target), -1)
        length = int(np.sum(np.cumsum(ids == -1) == 0))
        for k in range(length):
            p, q, n = draft[k], target[k], ids[k]
            if mistake == "swapped":
                p, q = q, p
            kept = u[k, 0] * p[n] < q[n]
            if mistake == "not strict":
                kept = u[k, 0] * p[n] <= q[n]
            if mistake == "coin stuck":
                kept = True
            if kept:
                out[k] = n
                continue
            weights = np.maximum(q - p, 0)
            if mistake == "target":
                weights = q
            if mistake == "other position":
                weights = target[k + 1]
            sums = np.cumsum(weights)
            bar = u[k, 1] * (1.0 if mistake == "not renormalised" else sums[-1])
            out[k] = min(np.sum(sums <= bar), len(q) - 1)
            return out
        row = target[0 if mistake == "bonus" else length]
        out[length] = min(np.sum(np.cumsum(row) <= u[length, 1]), len(row) - 1)
        return out

    return verifier


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_library_conforms_exactly(rule: cr.Rule) -> None:
    report = check_verifier(verifier_of(rule), rule)
    assert report.ok, report
    assert report.num_checks > 20


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_library_conforms_by_sampling(rule: cr.Rule) -> None:
    report = check_verifier(verifier_of(rule), rule, randomness="own", num_samples=4000)
    assert report.ok, report


def test_a_right_scalar_verifier_passes_both_tests() -> None:
    assert check_verifier(wrong("nothing"), cr.Lossless()).ok
    report = check_verifier(wrong("nothing"), cr.Lossless(), randomness="own", num_samples=3000)
    assert report.ok, report


MISTAKES = {
    "swapped": diagnosis.SWAPPED,
    "not strict": diagnosis.ZERO_COIN,
    "coin stuck": diagnosis.COIN_STUCK,
    "target": diagnosis.IS_TARGET,
    "other position": diagnosis.OTHER_POSITION,
    "not renormalised": diagnosis.NOT_RENORMALISED,
    "bonus": diagnosis.OTHER_POSITION,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found_exactly_and_named(mistake: str) -> None:
    report = check_verifier(wrong(mistake), cr.Lossless())
    assert not report.ok
    assert MISTAKES[mistake] in report.diagnoses, report


@pytest.mark.parametrize("mistake", ["coin stuck", "target", "not renormalised", "swapped"])
def test_a_mistake_is_found_by_sampling_and_named(mistake: str) -> None:
    report = check_verifier(wrong(mistake), cr.Lossless(), randomness="own", num_samples=4000)
    assert not report.ok
    assert MISTAKES[mistake] in report.diagnoses, report


def test_the_lossless_rule_in_place_of_another_is_named() -> None:
    report = check_verifier(verifier_of(cr.Lossless()), cr.Cactus(0.1))
    assert diagnosis.IS_LOSSLESS in report.diagnoses


def test_an_id_outside_the_vocabulary_and_a_wrong_shape_are_found() -> None:
    def outside(draft: Any, target: Any, ids: Any, uniforms: Any) -> np.ndarray:
        return np.full(target.shape[:2], target.shape[-1])

    def short(draft: Any, target: Any, ids: Any, uniforms: Any) -> np.ndarray:
        return ids

    assert any("token ids" in str(f) for f in check_verifier(outside, cr.Lossless()).findings)
    assert any("shape" in str(f) for f in check_verifier(short, cr.Lossless()).findings)


@pytest.fixture
def rows() -> np.ndarray:
    logits = np.random.default_rng(0).normal(scale=1.5, size=(3000, 12))
    return np.asarray(cr.warp(logits))


def drawn(rows: np.ndarray, seed: int = 1) -> np.ndarray:
    u = np.random.default_rng(seed).random(len(rows))
    return np.sum(
        np.cumsum(rows, axis=-1) <= u[:, None] * rows.sum(axis=-1, keepdims=True), axis=-1
    )


def test_honest_logs_pass(rows: np.ndarray) -> None:
    assert check_proposal(drawn(rows), rows).ok


def test_dishonest_logs_are_found_and_named(rows: np.ndarray) -> None:
    logits = np.log(rows)
    cases = {
        proposals.ARGMAX: np.argmax(rows, axis=-1),
        proposals.TRUNCATED: drawn(np.asarray(cr.warp(logits, top_k=4))),
        proposals.SHARPER: drawn(np.asarray(cr.warp(logits, temperature=0.8))),
        proposals.FLATTER: drawn(np.asarray(cr.warp(logits, temperature=1.3))),
    }
    for text, tokens in cases.items():
        report = check_proposal(tokens, rows)
        assert report.diagnoses == [text], report
    excluded = np.asarray(cr.warp(logits, top_k=3))
    assert check_proposal(drawn(rows), excluded).diagnoses == [proposals.IMPOSSIBLE]
