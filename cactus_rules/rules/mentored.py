"""The clip rule: the most accepting rule whose output law stays within a divergence budget."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from cactus_rules import divergences
from cactus_rules._clip import clip_within_budget
from cactus_rules.boost import boost
from cactus_rules.divergences import Divergence
from cactus_rules.rules.base import Drafted, Guarantee, Numbers, Rule, about, parameter


@dataclass(frozen=True)
class Mentored(Rule):
    """Maximise sum_i min(p_i, h_i) over laws h within q's support with D(h||q) <= delta.

    For a strictly convex divergence the optimum is h = clip(p, b q, a q) with 0 <= b <= 1 <= a. It
    does not depend on the drafted token, so h **is** the output law, and the budget is kept where
    it counts. At one position no rule with output inside q's support accepts more at that
    divergence. Known for
    KL(q||h) as mentored decoding [1]; with the max-divergence it accepts what `Lenience` accepts.

    Reads both rows and sorts them once, O(V log V); the GPU kernels read them a few times instead.
    A one-hot draft needs two numbers only, and the rule is then `Cactus(delta, divergence)`.

    Args:
        delta: budget per position on D(output law, target), in nats for KL; >= 0; 0 is lossless.
        divergence: a name or a record of `cactus_rules.divergences`.

    [1] Tran-Thien and Nock, "Mentored decoding" (vivien000/mentored_decoding).
    """

    delta: Any = field(metadata=about("budget per position, in nats for KL", 0.1))
    divergence: str | Divergence = field(
        default="kl", metadata=about("which divergence the budget is in")
    )

    name = "mentored"
    reads = "rows"
    metered = True

    def __post_init__(self) -> None:
        """Check the parameters."""
        parameter(self, "delta", 0.0, remedy="the budget is in nats; 0 is lossless")
        object.__setattr__(self, "divergence", divergences.get(self.divergence))

    def numbers(self, at: Drafted) -> Numbers:
        """Cap = a q_n, scale = b."""
        record = divergences.get(self.divergence)
        if at.one_hot:
            cap = boost(at.q_n, self.delta, record)
            return Numbers(cap, 1.0)
        a, b = clip_within_budget(*at.rows, record, self.delta)
        return Numbers(a * at.q_n, b)

    @property
    def guarantee(self) -> Guarantee:
        """The budget, on the output law."""
        return Guarantee("output", divergences.get(self.divergence).name, self.delta)
