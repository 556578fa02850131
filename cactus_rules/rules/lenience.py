"""Lenience: speculative sampling against an inflated target."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cactus_rules._arrays import namespace
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Lenience(Rule):
    """Accept with probability min(1, factor q_n/p_n); on rejection draw from (q - p)+ [1, A.5].

    No token's probability grows by more than the factor, output_i <= factor q_i, hence every Renyi
    divergence of the output law, KL among them, is at most log(factor).

    Args:
        factor: >= 1; 1 is lossless. (Leviathan et al. write the lenience l = 1/factor.)

    [1] arXiv 2211.17192.
    """

    factor: Any = field(metadata=about("by which a token may grow likelier, >= 1", 1.5))

    name = "lenience"
    metered = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        parameter(self, "factor", 1.0, remedy="1 is lossless; a lenience l <= 1 is factor 1/l")

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = factor q_n, scale = 1."""
        return Numbers(self.factor * at.q_n, 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """Every Renyi divergence of the output law."""
        if hasattr(self.factor, "dtype"):
            return Guarantee("output", "max", namespace(self.factor).log(self.factor))
        return Guarantee("output", "max", math.log(self.factor), "so every Renyi divergence")
