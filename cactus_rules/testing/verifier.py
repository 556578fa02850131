"""`check_verifier`: a verifier against its rule, exactly if it takes uniforms, else by sampling."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import numpy as np

from cactus_rules.rules import Rule
from cactus_rules.testing.battery import battery
from cactus_rules.testing.exact import check_exactly
from cactus_rules.testing.report import Finding, Report
from cactus_rules.testing.sampling import check_by_sampling


class Verifier(Protocol):
    """A callable in `verify`'s form, with or without `uniforms`."""

    def __call__(
        self, draft_probs: Any, target_probs: Any, draft_token_ids: Any, **randomness: Any
    ) -> Any:
        """Token ids `(B, K+1)` padded with -1, or an object that has them as `token_ids`."""


def check_verifier(
    verifier: Verifier,
    rule: Rule,
    *,
    randomness: Literal["uniforms", "own"] = "uniforms",
    tolerance: float = 1e-9,
    num_samples: int = 20_000,
    error_level: float = 1e-3,
    seed: int = 0,
) -> Report:
    """Test a verifier on a battery of rows, failure reports of other implementations among them.

    Args:
        verifier: called with numpy float64 draft_probs `(B, K, V)`, target_probs `(B, K+1, V)` and
            draft_token_ids `(B, K)` padded with -1, and with ``uniforms=(B, K+1, 2)`` if
            `randomness` is "uniforms". Wrap yours to convert dtypes and devices.
        rule: the rule that it should implement.
        randomness: "uniforms": the verifier takes them as `cactus_rules.verify` does, and its
            acceptance probabilities and laws are recovered by bisection, exactly up to `tolerance`.
            "own": it draws its own numbers, and is tested by G-tests on sampled drafts.
        tolerance: largest deviation of a probability in the exact test; about 1e-6 for a verifier
            that computes in float32.
        num_samples: requests for each case of the sampling test.
        error_level: probability that the sampling test blames a right verifier, over all its cases.
        seed: of the battery's random rows and of the sampled drafts.

    Returns:
        A `Report`; `report.ok` says whether nothing was found.
    """
    if randomness not in ("uniforms", "own"):
        raise ValueError(f"randomness must be 'uniforms' or 'own', got {randomness!r}")
    cases = battery(seed)
    if randomness == "uniforms":
        return check_exactly(verifier, rule, cases, tolerance)
    return check_by_sampling(verifier, rule, cases, num_samples, error_level, seed)


def emitted(result: Any, shape: tuple[int, int], width: int) -> tuple[np.ndarray, list[Finding]]:
    """Token ids of a verifier's result as numpy, and findings about their form."""
    ids = getattr(result, "token_ids", result)
    ids = np.asarray(ids.cpu() if hasattr(ids, "cpu") else ids)
    if ids.shape != shape:
        return np.zeros(shape, np.int64), [
            Finding("any", "shape of the token ids", str(ids.shape), str(shape))
        ]
    wrong = ids[(ids >= width) | (ids < -1)]
    if wrong.size:
        return np.clip(ids, 0, width - 1), [
            Finding("any", "token ids", str(wrong[0]), f"-1 or 0..{width - 1}")
        ]
    return ids, []
