"""Typical acceptance: keep a token that the target finds likely enough, whatever its entropy."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Typical(Rule):
    """Accept iff q_n > min(epsilon, alpha e^{-H(q)}); on rejection draw from q [1, sec. 2.3.3].

    Promises nothing about the output law: it is Cactus' problem with the cross-entropy H(h, q) in
    the place of a divergence, which rewards collapse onto the likeliest tokens.

    Args:
        epsilon: the posterior threshold, > 0 in practice .09.
        alpha: the entropy factor, in practice .3.

    [1] arXiv 2401.10774 (Medusa).
    """

    epsilon: Any = field(default=0.09, metadata=about("threshold on the target probability"))
    alpha: Any = field(default=0.3, metadata=about("factor of the entropy threshold"))

    name = "typical"
    reads = "target"

    def __post_init__(self) -> None:
        """Check the parameters."""
        parameter(self, "epsilon", 0.0)
        parameter(self, "alpha", 0.0)

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = infinity above the threshold, else 0; scale = infinity, which is q itself."""
        xp, q = at.xp, at.target
        entropy = -xp.sum(q * xp.log(xp.where(q > 0, q, 1.0)), axis=-1)
        threshold = self.alpha * xp.exp(-entropy)
        threshold = xp.minimum(threshold, self.epsilon + 0 * threshold)
        return Numbers(xp.where(at.q_n > threshold, math.inf, 0 * at.q_n), math.inf)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee(None)
