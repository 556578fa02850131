"""Threshold acceptance, as SGLang's speculative decoding does it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Threshold(Rule):
    """Accept iff u < q_n/acc or q_n >= single, p ignored; on rejection draw from q without n.

    Args:
        acc: SGLang's `threshold_acc`, in (0, 1]; 1 is lossless when `single` is above 1.
        single: SGLang's `threshold_single`, >= 0: sure acceptance from there on; infinity never.
    """

    acc: Any = field(default=1.0, metadata=about("accept with probability q_n/acc, in (0, 1]"))
    single: Any = field(default=1.0, metadata=about("accept for sure from this q_n on"))

    name = "threshold"
    fixed_law = False
    ignores_draft = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        parameter(self, "acc", 2.0**-1022, 1.0, remedy="1 accepts with probability q_n")
        parameter(self, "single", 0.0, remedy="use math.inf to switch sure acceptance off")

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = q_n/acc, or infinity from `single` on; scale = 1, with p read as one-hot at n."""
        cap = at.xp.where(at.q_n >= self.single, math.inf, at.q_n / self.acc)
        return Numbers(cap, 1.0)

    @property
    def guarantee(self) -> Guarantee:
        """None."""
        return Guarantee(None)
