"""Reducible fuzzy acceptance: take the draft where the two rows agree, else stay lossless."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cactus_rules import divergences
from cactus_rules.divergences import Divergence
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class ReducibleFuzzy(Rule):
    """Take p as it is where D(p, q) <= threshold, else use the lossless rule [1, 2].

    The output law is p or q (mass of p that q excludes goes back to q), so its divergence is at
    most the threshold. It saves nothing by halves: above it it accepts no more than `Lossless`.

    Args:
        threshold: on D(p, q), in nats for KL; >= 0; 0 is lossless.
        divergence: a name or a record of `cactus_rules.divergences`.

    [1] arXiv 2502.20704 (fuzzy speculative decoding).
    [2] arXiv 2607.08690 (the reducible form).
    """

    threshold: Any = field(metadata=about("on D(draft, target)", 0.1))
    divergence: str | Divergence = field(
        default="js", metadata=about("which divergence the threshold is on")
    )

    name = "reducible-fuzzy"
    reads = "rows"
    metered = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        parameter(self, "threshold", 0.0, remedy="it bounds D(draft, target); 0 is lossless")
        object.__setattr__(self, "divergence", divergences.get(self.divergence))

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = infinity where the rows are close, else q_n; scale = 1."""
        record = divergences.get(self.divergence)
        if at.one_hot:
            gap = record.two_point(1 + 0 * at.q_n, at.q_n)
        else:
            gap = record.between(at.draft, at.target)
        return Numbers(at.xp.where(gap <= self.threshold, math.inf, at.q_n), 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """The threshold, on the output law."""
        return Guarantee("output", divergences.get(self.divergence).name, self.threshold)
