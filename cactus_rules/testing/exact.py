"""Recover a verifier's acceptance probabilities and laws from its uniforms, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cactus_rules.acceptance import accept
from cactus_rules.rules import Rule
from cactus_rules.testing import diagnosis
from cactus_rules.testing.battery import Case
from cactus_rules.testing.report import Finding, Report

_BISECTIONS = 34
_LAST = 1 - 2.0**-53


def check_exactly(verifier: Any, rule: Rule, cases: list[Case], tolerance: float) -> Report:
    """Compare every acceptance probability, residual law and bonus law with the rule's."""
    findings: list[Finding] = []
    checks = 0
    for case in cases:
        probe = _Probe(verifier, case)
        for k in range(case.length):
            found, made = _check_position(probe, rule, case, k, tolerance)
            findings += found
            checks += made
            if probe.findings or found:
                break
            if float(accept(case.draft[k], case.target[k], case.ids[k], rule=rule).cap) <= 0:
                break
        else:
            findings += _check_bonus(probe, case, tolerance)
            checks += 1
        findings += probe.findings
    return Report(tuple(findings), checks, f"exact to {tolerance:g}, by bisection of the uniforms")


class _Probe:
    """One case of a verifier, asked many times in one batch with different uniforms."""

    def __init__(self, verifier: Any, case: Case) -> None:
        self.verifier, self.case = verifier, case
        self.findings: list[Finding] = []

    def ask(self, uniforms: np.ndarray) -> np.ndarray:
        """Token ids `(B, K+1)` for uniforms `(B, K+1, 2)`."""
        from cactus_rules.testing.verifier import emitted

        case, count = self.case, len(uniforms)
        result = self.verifier(
            np.repeat(case.draft[None], count, axis=0),
            np.repeat(case.target[None], count, axis=0),
            np.repeat(case.ids[None], count, axis=0),
            uniforms=uniforms,
        )
        shape = (count, len(case.ids) + 1)
        ids, findings = emitted(result, shape, case.target.shape[-1])
        if findings and not self.findings:
            first = findings[0]
            self.findings.append(Finding(case.name, first.what, first.observed, first.expected))
        return ids

    def uniforms(self, count: int) -> np.ndarray:
        """Uniforms whose coins keep every token that can be kept."""
        made = np.zeros((count, len(self.case.ids) + 1, 2))
        made[..., 1] = 0.5
        return made

    def kept(self, k: int, coins: np.ndarray) -> np.ndarray:
        """Whether the token at k is kept, for coins `(B,)` there and 0 before."""
        u = self.uniforms(len(coins))
        u[:, k, 0] = coins
        return np.asarray(np.count_nonzero(self.ask(u) >= 0, axis=-1) > k + 1)

    def drawn(self, k: int, draws: np.ndarray, *, reject: bool) -> np.ndarray:
        """The last token, drawn at k, for draws `(B,)`."""
        u = self.uniforms(len(draws))
        u[:, k, 1] = draws
        if reject:
            u[:, k, 0] = _LAST
        return self.ask(u)[:, k]


def _boundaries(below: Callable[[np.ndarray], np.ndarray], count: int) -> np.ndarray:
    """For each of `count` monotone questions, the largest u that is still answered True."""
    low, high = np.zeros(count), np.ones(count)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        true = below(middle)
        low, high = np.where(true, middle, low), np.where(true, high, middle)
    return (low + high) / 2


def _law(probe: _Probe, k: int, width: int, *, reject: bool) -> np.ndarray:
    """The law of the token drawn at k, from the steps of its inverse CDF."""
    ids = np.arange(width - 1)
    steps = _boundaries(lambda u: probe.drawn(k, u, reject=reject) <= ids, width - 1)
    return np.diff(np.concatenate([[0.0], steps, [1.0]]))


def _check_position(
    probe: _Probe, rule: Rule, case: Case, k: int, tolerance: float
) -> tuple[list[Finding], int]:
    p, q, token = case.draft[k], case.target[k], int(case.ids[k])
    asked = accept(p, q, token, rule=rule)
    expected = float(asked.probability)
    observed = float(_boundaries(lambda u: probe.kept(k, u), 1)[0])
    findings = []
    if abs(observed - expected) > tolerance:
        guesses = diagnosis.acceptance(p, q, token, rule)
        findings.append(
            Finding(
                case.name,
                f"acceptance probability at position {k}",
                f"{observed:.9g}",
                f"{expected:.9g}",
                next((text for text, x in guesses if abs(x - observed) <= tolerance), ""),
            )
        )
    if expected == 0 and probe.kept(k, np.zeros(1))[0]:
        findings.append(
            Finding(case.name, f"coin 0 at position {k}", "kept", "rejected", diagnosis.ZERO_COIN)
        )
    if max(observed, expected) >= _LAST or findings:
        return findings, 2
    law, right = _law(probe, k, len(q), reject=True), asked.residual()
    if np.max(np.abs(law - right)) > tolerance:
        others = [row for j in range(len(case.ids)) if j != k for row in (case.target[j],)]
        others += [
            accept(case.draft[j], case.target[j], case.ids[j], rule=rule).residual()
            for j in range(case.length)
            if j != k
        ]
        guesses_of_law = diagnosis.residual(p, q, token, others, rule)
        what = f"law of the recovered token at position {k}"
        findings.append(_law_finding(case, what, law, right, guesses_of_law, tolerance))
    return findings, 3


def _check_bonus(probe: _Probe, case: Case, tolerance: float) -> list[Finding]:
    k = case.length
    right = case.target[k]
    law = _law(probe, k, len(right), reject=False)
    if np.max(np.abs(law - right)) <= tolerance:
        return []
    others = ((diagnosis.OTHER_POSITION, row) for row in [*case.target, *case.draft])
    return [_law_finding(case, "law of the bonus token", law, right, others, tolerance)]


def _law_finding(
    case: Case, what: str, law: np.ndarray, right: np.ndarray, guesses: Any, tolerance: float
) -> Finding:
    text = next((t for t, row in guesses if np.max(np.abs(row - law)) <= 10 * tolerance), "")
    if not text and np.count_nonzero(law > tolerance) == 1:
        text = diagnosis.DRAW_IGNORED
    seen, expected = (np.array2string(x, precision=4, suppress_small=True) for x in (law, right))
    return Finding(case.name, what, seen, expected, text)
