"""Test a verifier that draws its own numbers: G-tests on the joint law of decision and token."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from cactus_rules.acceptance import accept
from cactus_rules.law import output_law
from cactus_rules.rules import Rule
from cactus_rules.testing import diagnosis
from cactus_rules.testing.battery import Case
from cactus_rules.testing.report import Finding, Report

_LEAST_EXPECTED = 5.0
_POWER = 0.9


def check_by_sampling(
    verifier: Any, rule: Rule, cases: list[Case], num_samples: int, error_level: float, seed: int
) -> Report:
    """Draw drafts from p, run the verifier, compare counts of (kept or not, token) at each k."""
    rng = np.random.default_rng(seed)
    findings: list[Finding] = []
    tests = sum(case.length + 1 for case in cases)
    level = error_level / tests
    for case in cases:
        drafted, ids, wrong = _run(verifier, case, num_samples, rng)
        if wrong:
            findings += wrong
            continue
        kept = np.count_nonzero(ids >= 0, axis=-1) - 1
        reached = np.ones(num_samples, bool)
        for k in range(case.length):
            was_kept = kept[reached] > k
            tokens = np.where(was_kept, drafted[reached, k], ids[reached, k])
            joint = _joint(case.draft[k], case.target[k], rule)
            counts = _counts(was_kept, tokens, len(case.target[k]))
            findings += _compare(case, k, counts, joint, level, rule)
            reached = reached & (kept > k)
        bonus = np.bincount(ids[reached, case.length], minlength=len(case.target[0]))
        p_value = g_test(bonus, case.target[case.length])
        if p_value < level:
            findings.append(
                Finding(
                    case.name, "law of the bonus token", f"p = {p_value:.2g}", f">= {level:.2g}"
                )
            )
    method = (
        f"G-tests, {num_samples} requests a case, family-wise error level {error_level:g}; "
        f"finds a total variation of {smallest_found(num_samples, level):.3f} with probability "
        f"{_POWER:g}"
    )
    return Report(tuple(findings), tests, method)


def smallest_found(num_samples: int, level: float, cells: int = 8) -> float:
    """The total variation that a G-test finds with probability .9, at least.

    The noncentrality of n samples at total variation t is n chi2 >= 4 n t^2.
    """
    bar = stats.chi2.isf(level, cells - 1)
    low, high = 0.0, 1.0
    for _ in range(50):
        t = (low + high) / 2
        power = stats.ncx2.sf(bar, cells - 1, 4 * num_samples * t * t)
        low, high = (low, t) if power >= _POWER else (t, high)
    return high


def g_test(counts: np.ndarray, law: np.ndarray) -> float:
    """P-value of counts under a law: exact 0 outside its support, small cells merged."""
    counts, law = np.ravel(counts), np.ravel(law)
    if counts[law <= 0].sum() > 0:
        return 0.0
    total = counts.sum()
    expected = law * total / law.sum() if total else law
    order = np.argsort(expected)
    expected, counts = expected[order], counts[order]
    small = int(np.searchsorted(np.cumsum(expected), _LEAST_EXPECTED)) + 1
    small = max(small, int(np.count_nonzero(expected < _LEAST_EXPECTED)))
    observed = np.append(counts[:small].sum(), counts[small:]).astype(float)
    expected = np.append(expected[:small].sum(), expected[small:])
    if len(observed) < 2:
        return 1.0
    used = observed > 0
    g = 2 * np.sum(observed[used] * np.log(observed[used] / expected[used]))
    return float(stats.chi2.sf(g, len(observed) - 1))


def _run(
    verifier: Any, case: Case, count: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, list[Finding]]:
    from cactus_rules.testing.verifier import emitted

    drafted = np.full((count, len(case.ids)), -1)
    for k in range(case.length):
        drafted[:, k] = rng.choice(case.draft.shape[-1], size=count, p=case.draft[k])
    result = verifier(
        np.repeat(case.draft[None], count, axis=0),
        np.repeat(case.target[None], count, axis=0),
        drafted,
    )
    ids, wrong = emitted(result, (count, len(case.ids) + 1), case.target.shape[-1])
    named = [Finding(case.name, f.what, f.observed, f.expected) for f in wrong]
    return drafted, ids, named


def _joint(p: np.ndarray, q: np.ndarray, rule: Rule) -> np.ndarray:
    """P(kept, token) and P(not kept, token), `(2, V)`."""
    tokens = np.flatnonzero(p > 0)
    kept = np.zeros(len(p))
    for token in tokens:
        kept[token] = p[token] * float(accept(p, q, int(token), rule=rule).probability)
    return np.stack([kept, np.maximum(output_law(p, q, rule) - kept, 0.0)])


def _counts(kept: np.ndarray, tokens: np.ndarray, width: int) -> np.ndarray:
    return np.stack([np.bincount(tokens[flag], minlength=width) for flag in (kept, ~kept)])


def _compare(
    case: Case, k: int, counts: np.ndarray, joint: np.ndarray, level: float, rule: Rule
) -> list[Finding]:
    # Rounding leaves crumbs in the law of recovered tokens that cannot be drawn.
    joint = np.where(joint > 1e-14, joint, 0.0)
    p_value = g_test(counts, joint)
    if p_value >= level or counts.sum() == 0:
        return []
    total = counts.sum()
    what = f"decision and token at position {k} (p = {p_value:.2g})"
    seen, right = (
        np.array2string(x, precision=3, suppress_small=True) for x in (counts / total, joint)
    )
    return [Finding(case.name, what, seen, right, _diagnose(case, k, counts, level, rule))]


def _diagnose(case: Case, k: int, counts: np.ndarray, level: float, rule: Rule) -> str:
    """The known mistake whose joint law the counts fit."""
    p, q = case.draft[k], case.target[k]
    if counts[1].sum() == 0:
        return diagnosis.COIN_STUCK
    if counts[0].sum() == 0:
        return diagnosis.ALL_REJECTED
    right = _joint(p, q, rule)
    tokens = np.flatnonzero(p > 0)
    for text in (diagnosis.IS_LOSSLESS, diagnosis.SWAPPED, diagnosis.NOT_DIVIDED):
        rates = np.zeros(len(p))
        for token in tokens:
            rates[token] = dict(diagnosis.acceptance(p, q, int(token), rule)).get(text, 0.0)
        fits = g_test(np.stack([counts[0], _rest(counts, p)]), _binomials(p, rates)) >= level
        if fits and g_test(counts[0], right[0]) < level:
            return text
    for token in tokens:
        others = [row for j, row in enumerate(case.target) if j != k]
        for text, law in diagnosis.residual(p, q, int(token), others, rule):
            if law.min() >= 0 and law.sum() > 0 and g_test(counts[1], law) >= level:
                return text
    return ""


def _rest(counts: np.ndarray, p: np.ndarray) -> np.ndarray:
    """How often each token was drafted and not kept, estimated from the draft's law."""
    return np.asarray(np.maximum(np.round(counts.sum() * p) - counts[0], 0))


def _binomials(p: np.ndarray, rates: np.ndarray) -> np.ndarray:
    return np.stack([p * rates, p * (1 - rates)])
