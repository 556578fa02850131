"""Ensemble: emit exactly a mixture of target and draft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Ensemble(Rule):
    """Emit weight q + (1 - weight) p, the mixture of target and draft.

    TV(output, q) = (1 - weight) TV(p, q) exactly, where the draft's support is inside the target's.
    Elsewhere no excluded token is emitted and the output is at most that far away. `transformers`
    offers it as `assistant_ensemble_weight`.

    Args:
        weight: the target's share, in [0, 1]; 1 is lossless.
    """

    weight: Any = field(metadata=about("share of the target, in [0, 1]", 0.7))

    name = "ensemble"
    metered = True

    def __post_init__(self) -> None:
        """Check the parameter."""
        parameter(self, "weight", 0.0, 1.0, remedy="it is the target's share; 1 is lossless")

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = weight q_n + (1 - weight) p_n, scale = 1."""
        return Numbers(self.weight * at.q_n + (1 - self.weight) * at.p_n, 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """The share of the draft bounds the total variation."""
        return Guarantee("output", "tv", 1 - self.weight, "times TV(draft, target)")
