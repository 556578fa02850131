"""The clip rule at one band width for all positions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cactus_rules._clip import clip_within_band
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Band(Rule):
    """Emit clip(p, b q, a q) with log(a/b) = width at every position.

    Where KL budgets of several fixed rows add up, the split of the total that accepts most is not
    an equal budget but an equal width: that is this rule. What always holds for the output law is
    |log(output_i / q_i)| <= width for every i, hence KL(output || q) and KL(q || output) <=
    width^2 / 8 (theory/derivations/06-clip-rule.md); the metrics say what was really spent.

    Args:
        width: log(a/b) >= 0, in nats; 0 is lossless, infinity takes the draft wherever q > 0.
    """

    width: Any = field(metadata=about("log(a/b), in nats", 1.0))

    name = "band"
    reads = "rows"
    metered = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        parameter(self, "width", 0.0, remedy="it is log(a/b); 0 is lossless")

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = a q_n, scale = b."""
        xp = at.xp
        if at.one_hot:
            # a q_n + b (1 - q_n) = 1 with b = a exp(-width).
            shrink = xp.exp(xp.asarray(-self.width, dtype=xp.float64) + 0 * at.q_n)
            return Numbers(at.q_n / (at.q_n + shrink * (1 - at.q_n)), 1.0)
        a, b = clip_within_band(at.draft, at.target, self.width)
        return Numbers(a * at.q_n, b)

    @property
    def guarantee(self) -> Guarantee:
        """The largest log ratio of output to target."""
        return Guarantee("output", "max", self.width, "so KL <= width^2/8, both ways")
