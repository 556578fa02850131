"""The conformance kit on somebody else's verifier: transformers' own speculative sampling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import cactus_rules as cr
from cactus_rules.testing import check_verifier, diagnosis

torch = pytest.importorskip("torch", reason="torch is not installed")
generation = pytest.importorskip(
    "transformers.generation.utils", reason="transformers is not installed"
)

SAMPLES = 500


def verifier(weight: float | None = None, *, forget_draft: bool = False) -> Any:
    """Transformers' function, one request at a time, in the form of `cr.verify`."""

    def verify(draft: Any, target: Any, ids: Any) -> np.ndarray:
        torch.manual_seed(0)
        out = np.full(target.shape[:2], -1)
        for b, drafted in enumerate(ids):
            length = int(np.sum(np.cumsum(drafted == -1) == 0))
            p = torch.tensor(draft[b : b + 1, :length]).log()
            q = torch.tensor(target[b : b + 1, : length + 1]).log()
            tokens = torch.tensor(drafted[None, :length])
            if forget_draft:
                p = torch.zeros_like(p)
            taken, _ = generation._speculative_sampling(tokens, p, length, q, weight)
            out[b, : taken.shape[1]] = taken[0].numpy()
        return out

    return verify


def test_transformers_speculative_sampling_is_lossless() -> None:
    report = check_verifier(verifier(), cr.Lossless(), randomness="own", num_samples=SAMPLES)
    assert report.ok, report
    assert report.num_checks > 20


def test_transformers_assistant_ensemble_weight_is_the_ensemble_rule() -> None:
    rule = cr.Ensemble(0.6)
    # Without the support rule: a token that the target excludes is kept with probability 1 - w.
    report = check_verifier(verifier(0.6), rule, randomness="own", num_samples=SAMPLES)
    assert {finding.case for finding in report.findings} <= {
        "excluded by the target",
        "one-hot target",
    }, report


def test_a_verifier_that_is_not_told_the_draft_is_caught() -> None:
    wrong = verifier(forget_draft=True)
    report = check_verifier(wrong, cr.Lossless(), randomness="own", num_samples=SAMPLES)
    assert not report.ok


def test_another_rule_in_its_place_is_caught_and_named() -> None:
    report = check_verifier(verifier(), cr.Lenience(3.0), randomness="own", num_samples=SAMPLES)
    assert diagnosis.IS_LOSSLESS in report.diagnoses
