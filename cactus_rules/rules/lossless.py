"""Speculative sampling: the classic rule, which keeps the target's law exactly."""

from __future__ import annotations

from dataclasses import dataclass

from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule


@dataclass(frozen=True)
class Lossless(Rule):
    """Accept with probability min(1, q_n/p_n); on rejection draw from (q - p)+ [1, 2].

    The output law is the target q itself, and no rule with that property accepts more at one
    position (block verification accepts more over a draft).

    [1] arXiv 2211.17192 (Leviathan et al.), Appendix A.1; there p and q are swapped.
    [2] arXiv 2302.01318 (Chen et al.), Theorem 1.
    """

    name = "lossless"
    metered = True

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = q_n, scale = 1."""
        return Numbers(at.q_n, 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """The output law is the target's."""
        return Guarantee("output", "every divergence", 0.0)
